package idemhttp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem/idemhttp"
)

func TestParseKey_TakesAStructuredString(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`"8e03978e-40d5-43e8-bc93-6894a57f9324"`: "8e03978e-40d5-43e8-bc93-6894a57f9324",
		`"a\"b\\c"`:                              `a"b\c`,
		` "abc"  `:                               "abc",
		`"abc";v=1`:                              "abc",
		`"abc"; v=1.5;flag; t=*tok/en:x; s="x;y\""; b=:YQ==:; d=@-17; u=%"f%c3%bc"; n=?0`: "abc",
		`"a,b"`:                               "a,b",
		`"` + strings.Repeat("k", 255) + `"`:  strings.Repeat("k", 255),
		`"` + strings.Repeat(`\\`, 255) + `"`: strings.Repeat(`\`, 255),
	} {
		for _, strict := range []bool{false, true} {
			got, err := idemhttp.ParseKey(http.Header{"Idempotency-Key": {line}}, strict)
			if err != nil || got != want {
				t.Errorf("%s, strict %t: key %q, %v; want %q", line, strict, got, err, want)
			}
		}
	}
}

func TestParseKey_TakesABareKeyUnlessStrict(t *testing.T) {
	t.Parallel()
	all := ""
	for c := byte('!'); c <= '~'; c++ {
		all += string(c)
	}
	for _, key := range []string{"abc", "8e03978e-40d5", "a/b+c==", `it"s`, all, strings.Repeat("k", 255)} {
		h := http.Header{"Idempotency-Key": {key}}
		got, err := idemhttp.ParseKey(h, false)
		if err != nil || got != key {
			t.Errorf("key %q, %v; want %q", got, err, key)
		}
		if got, err := idemhttp.ParseKey(h, true); err == nil {
			t.Errorf("strict took the bare %q as %q", key, got)
		}
	}
}

func TestParseKey_RefusesWhatIsMalformed(t *testing.T) {
	t.Parallel()
	for _, lines := range [][]string{
		nil,
		{"a", "b"},
		{"a", "a"},
		{`"a"`, `"a"`},
		{""},
		{`""`},
		{`"`},
		{`"a`},
		{`"a\"`},
		{`"a\n"`},
		{`"a"b`},
		{`"a" "b"`},
		{`"a", "b"`},
		{`"a";`},
		{`"a";V=1`},
		{`"a";v=`},
		{`"a b"`},
		{"a b"},
		{"a\tb"},
		{"a\x00b"},
		{"a\x7f"},
		{"é"},
		{`"é"`},
		{"\xff"},
		{"a, b"},
		{strings.Repeat("k", 256)},
		{`"` + strings.Repeat("k", 256) + `"`},
	} {
		for _, strict := range []bool{false, true} {
			if got, err := idemhttp.ParseKey(http.Header{"Idempotency-Key": lines}, strict); err == nil {
				t.Errorf("%q, strict %t: took it as %q", lines, strict, got)
			}
		}
	}
}

// FuzzParseKey: what is taken is a key; what is taken strictly is taken leniently as the
// same one; and each key, quoted, comes back.
func FuzzParseKey(f *testing.F) {
	for _, line := range []string{
		"", "abc", `"abc"`, ` "a\"b\\c" ; v=1`, `"abc"; t=*tok/en:x; u=%"f%c3%bc"; n=?0`, `"a" "b"`, `"a\n"`, "a\x00b", "é", `"`, strings.Repeat("k", 256),
	} {
		f.Add(line)
	}
	quote := strings.NewReplacer(`"`, `\"`, `\`, `\\`)
	f.Fuzz(func(t *testing.T, line string) {
		h := http.Header{"Idempotency-Key": {line}}
		key, err := idemhttp.ParseKey(h, false)
		strict, strictErr := idemhttp.ParseKey(h, true)
		if strictErr == nil && (err != nil || strict != key) {
			t.Fatalf("%q is %q strictly and %q, %v leniently", line, strict, key, err)
		}
		if err != nil {
			return
		}
		if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' }) {
			t.Fatalf("%q was taken as %q", line, key)
		}
		if again, err := idemhttp.ParseKey(http.Header{"Idempotency-Key": {`"` + quote.Replace(key) + `"`}}, true); err != nil || again != key {
			t.Fatalf("%q, quoted, became %q, %v", key, again, err)
		}
	})
}
