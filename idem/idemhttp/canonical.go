package idemhttp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep JSON may nest to be made canonical.
const maxDepth = 100

// canonicalJSON is a form that texts share which differ in white space, in the order
// of an object's members and in how a string is escaped. Numbers stay as written: 1
// and 1.0 differ, as do two numbers that are one as float64. ok is false for what has
// more than one meaning: text that isn't JSON in UTF-8, an object with two members of
// one name, half of a surrogate pair.
func canonicalJSON(body []byte) (canonical []byte, ok bool) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return appendValue(make([]byte, 0, len(body)), dec, maxDepth)
}

func appendValue(b []byte, dec *json.Decoder, depth int) ([]byte, bool) {
	token, err := dec.Token()
	if err != nil || depth == 0 {
		return nil, false
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return appendObject(b, dec, depth)
		}
		return appendArray(b, dec, depth)
	case json.Number:
		return append(b, token...), true
	case string:
		return appendString(b, token)
	default: // true, false and null
		return appendMarshalled(b, token)
	}
}

func appendArray(b []byte, dec *json.Decoder, depth int) ([]byte, bool) {
	b = append(b, '[')
	for first := true; dec.More(); first = false {
		if !first {
			b = append(b, ',')
		}
		var ok bool
		if b, ok = appendValue(b, dec, depth-1); !ok {
			return nil, false
		}
	}
	_, err := dec.Token()
	return append(b, ']'), err == nil
}

type member struct {
	name string
	text []byte
}

func appendObject(b []byte, dec *json.Decoder, depth int) ([]byte, bool) {
	var members []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		m := member{name: name.(string)} // json.Valid has seen to it
		text, ok := appendString(nil, m.name)
		if !ok {
			return nil, false
		}
		if m.text, ok = appendValue(append(text, ':'), dec, depth-1); !ok {
			return nil, false
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	b = append(b, '{')
	for i, m := range members {
		if i > 0 && m.name == members[i-1].name {
			return nil, false
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m.text...)
	}
	_, err := dec.Token()
	return append(b, '}'), err == nil
}

// appendString refuses the replacement character: it may stand for half of a
// surrogate pair, and two different ones would look the same.
func appendString(b []byte, s string) ([]byte, bool) {
	if strings.ContainsRune(s, utf8.RuneError) {
		return nil, false
	}
	return appendMarshalled(b, s)
}

func appendMarshalled(b []byte, v any) ([]byte, bool) {
	text, err := json.Marshal(v)
	return append(b, text...), err == nil
}
