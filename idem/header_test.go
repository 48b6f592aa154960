package idem_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
)

// FuzzHeader stores headers and reads them back. What is stored is JSON in printable
// ASCII without an escape that jsonb refuses.
func FuzzHeader(f *testing.F) {
	f.Add("Content-Type", "application/json", "Link", "")
	f.Add("X-Nul", "a\x00b", "\xff", "é")
	f.Add("base64:", "base64:", "base64:%", `"\u0000"`)
	f.Add("", "\u2028", "A", "\r\n")
	f.Fuzz(func(t *testing.T, name, value, name2, value2 string) {
		for _, h := range []http.Header{
			nil, {}, {name: nil}, {name: {}}, {name: {value, value2, value}}, {name: {value}, name2: {value2}},
		} {
			text, err := idem.EncodeHeader(h)
			if err != nil {
				t.Fatal(err)
			}
			if h == nil && text != "" || h != nil && !json.Valid([]byte(text)) {
				t.Fatalf("%#v is stored as %q", h, text)
			}
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) || strings.Contains(text, `\u0000`) && !strings.Contains(text, `\\u0000`) {
				t.Fatalf("%#v is stored as %q, which jsonb may refuse or change", h, text)
			}
			got, err := idem.DecodeHeader(text)
			if err != nil || !reflect.DeepEqual(got, h) {
				t.Fatalf("%#v came back as %#v, %v", h, got, err)
			}
		}
	})
}

// FuzzDecodeHeader reads what somebody else may have written.
func FuzzDecodeHeader(f *testing.F) {
	for _, text := range []string{"", "null", "{}", `{"A":null}`, `{"A":["b"]}`, `{"base64:QQ==":["base64:/w=="]}`, `{"A":["base64:%"]}`, `[]`, `{"A":1}`, "\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := idem.DecodeHeader(text)
		if err != nil {
			if !errors.Is(err, idem.ErrInvalidReply) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := idem.EncodeHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := idem.DecodeHeader(again); err != nil || !reflect.DeepEqual(back, h) {
			t.Fatalf("%q is %#v, stored again %q and then %#v, %v", text, h, again, back, err)
		}
	})
}
