package idemhttp

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/idem"
)

// fingerprintVersion says which parts are hashed, and how.
const fingerprintVersion = "1"

// fingerprint tells a retry from another request: each part framed by its length, so
// that nothing can move from one part to the next.
func (m *Middleware) fingerprint(r *http.Request, body []byte) idem.Fingerprint {
	media := mediaType(r.Header)
	encoding := strings.ToLower(strings.Join(r.Header.Values("Content-Encoding"), ","))
	if m.cfg.CanonicalJSON && encoding == "" && isJSON(media) {
		media, _, _ = strings.Cut(media, ";") // JSON has no parameters
		if canonical, ok := canonicalJSON(body); ok {
			body = canonical
		}
	}
	query := queryFingerprint(r.URL.RawQuery)
	return idem.FingerprintOf([]byte(fingerprintVersion), []byte(r.Method), []byte(r.Pattern),
		[]byte(r.URL.EscapedPath()), query[:], []byte(media), []byte(encoding), body)
}

// mediaType is the request's, with its parameters: a charset can change what a body
// says.
func mediaType(h http.Header) string {
	field := strings.Join(h.Values("Content-Type"), ",")
	media, params, err := mime.ParseMediaType(field)
	if err != nil {
		return field
	}
	return mime.FormatMediaType(media, params)
}

func isJSON(media string) bool {
	media, _, _ = strings.Cut(media, ";")
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// queryFingerprint leaves out the order of the names, and keeps the order of one
// name's values.
func queryFingerprint(raw string) idem.Fingerprint {
	type pair struct{ name, value string }
	var pairs []pair
	for text := range strings.SplitSeq(raw, "&") {
		if text != "" {
			name, value, _ := strings.Cut(text, "=")
			pairs = append(pairs, pair{name, value})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	var parts [][]byte
	for _, p := range pairs {
		parts = append(parts, []byte(p.name), []byte(p.value))
	}
	return idem.FingerprintOf(parts...)
}
