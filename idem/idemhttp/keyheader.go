package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// keyHeader is the request's header (draft-ietf-httpapi-idempotency-key-header-07).
const keyHeader = "Idempotency-Key"

// maxKeyBytes is package idem's.
const maxKeyBytes = 255

var (
	errKeyMissing   = errors.New("idemhttp: " + keyHeader + " is missing")
	errKeyMalformed = errors.New("idemhttp: " + keyHeader + " is malformed")
)

// structuredString is a structured field's item that is a string, with parameters,
// which nobody has defined and everybody ignores (RFC 9651, 3.3.3 and 3.1.2).
var structuredString = regexp.MustCompile(`^ *"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"` +
	`(?:; *[a-z*][a-z0-9_.*-]*(?:=` + bareItem + `)?)* *$`)

// bareItem is a number, date, string, display string, token, byte sequence or boolean.
const bareItem = `(?:@?-?[0-9]{1,15}|-?[0-9]{1,12}\.[0-9]{1,3}` +
	`|"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"|%"(?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*"` +
	"|[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*" +
	`|:[A-Za-z0-9+/=]*:|\?[01])`

var unescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// parseKey reads the key from its one line: a structured-field string, or the bare
// text of it unless strict.
func parseKey(h http.Header, strict bool) (string, error) {
	lines := h.Values(keyHeader)
	switch {
	case len(lines) == 0:
		return "", errKeyMissing
	case len(lines) > 1:
		return "", fmt.Errorf("%w: it is there %d times", errKeyMalformed, len(lines))
	}
	key := lines[0]
	if strict || strings.HasPrefix(strings.TrimLeft(key, " "), `"`) {
		match := structuredString.FindStringSubmatch(key)
		if match == nil {
			return "", fmt.Errorf("%w: it must be a string in double quotes", errKeyMalformed)
		}
		key = unescape.Replace(match[1])
	}
	if key == "" || len(key) > maxKeyBytes || strings.ContainsFunc(key, invisible) {
		return "", fmt.Errorf("%w: it must be 1 to %d characters of visible ASCII", errKeyMalformed, maxKeyBytes)
	}
	return key, nil
}

func invisible(r rune) bool { return r < 0x21 || r > 0x7e }
