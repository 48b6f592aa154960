package idem

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// encodedPrefix marks a string of a header that JSON, or the database's encoding,
// might not give back as it was.
const encodedPrefix = "base64:"

// encodeHeader writes a header as JSON that any jsonb gives back byte for byte.
// What isn't printable ASCII is written in base64. Nil is the empty string.
func encodeHeader(h http.Header) (string, error) {
	if h == nil {
		return "", nil
	}
	encoded := make(map[string][]string, len(h))
	for name, values := range h {
		var list []string
		if values != nil {
			list = make([]string, len(values))
		}
		for i, v := range values {
			list[i] = encodeText(v)
		}
		encoded[encodeText(name)] = list
	}
	text, err := json.Marshal(encoded)
	return string(text), err
}

func decodeHeader(text string) (http.Header, error) {
	if text == "" {
		return nil, nil
	}
	var encoded map[string][]string
	if err := json.Unmarshal([]byte(text), &encoded); err != nil {
		return nil, fmt.Errorf("%w: its headers: %w", ErrInvalidReply, err)
	}
	h := make(http.Header, len(encoded))
	for name, values := range encoded {
		name, err := decodeText(name)
		if err != nil {
			return nil, err
		}
		for i := range values {
			if values[i], err = decodeText(values[i]); err != nil {
				return nil, err
			}
		}
		h[name] = values
	}
	return h, nil
}

func encodeText(s string) string {
	if !strings.HasPrefix(s, encodedPrefix) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s))
}

func decodeText(s string) (string, error) {
	code, encoded := strings.CutPrefix(s, encodedPrefix)
	if !encoded {
		return s, nil
	}
	raw, err := base64.StdEncoding.DecodeString(code)
	if err != nil {
		return "", fmt.Errorf("%w: its headers: %w", ErrInvalidReply, err)
	}
	return string(raw), nil
}
