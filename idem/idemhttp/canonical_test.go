package idemhttp_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem/idemhttp"
)

func TestCanonicalJSON_IsOneForWhatMeansTheSame(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{`{"a":1,"b":[true,null,"x"]}`, " {\n\t\"b\" : [ true , null , \"x\" ], \"a\": 1 } \r\n"},
		{`{"b":{"d":1,"c":2},"a":{}}`, `{"a":{},"b":{"c":2,"d":1}}`},
		{`"aé/😀"`, `"\u0061\u00e9\/\ud83d\ude00"`},
		{`{"ä":1,"z":2}`, `{"z":2,"\u00e4":1}`},
	} {
		first, ok := idemhttp.CanonicalJSON([]byte(same[0]))
		second, ok2 := idemhttp.CanonicalJSON([]byte(same[1]))
		if !ok || !ok2 || !bytes.Equal(first, second) {
			t.Errorf("%q and %q became %q and %q, want one text", same[0], same[1], first, second)
		}
	}
}

func TestCanonicalJSON_TellsApartWhatDiffers(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, text := range []string{
		"1", "1.0", "1e0", "10e-1", "-0", "0", `"1"`, "[1]", "[]", "{}", "[[]]", "[{}]", `""`, "null", `"null"`, "true", "false",
		"9007199254740993", "9007199254740992", "0.1", "0.10000000000000001", "1E400", "1E401",
		"[1,2]", "[2,1]", "[12]", `{"a":[1],"b":2}`, `{"a":[1,2]}`, `{"a":{"b":1},"c":2}`, `{"a":{"b":1,"c":2}}`,
		`"<"`, `"\\u003c"`, `"a\u0000b"`, `"ab"`, `"\u2028"`, `{"":1}`, `{"a":""}`, `{"A":""}`,
	} {
		canonical, ok := idemhttp.CanonicalJSON([]byte(text))
		if !ok {
			t.Errorf("%s was not taken", text)
		}
		if other, ok := seen[string(canonical)]; ok {
			t.Errorf("%s and %s both became %q", text, other, canonical)
		}
		seen[string(canonical)] = text
	}
}

func TestCanonicalJSON_LeavesAloneWhatIsAmbiguous(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "{", "[1,]", "{,}", "1 2", "{}{}", "nul", "01", "\xef\xbb\xbf{}", `{"a" 1}`,
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `[{"b":{"a":1,"c":0,"a":2}}]`,
		"\"\xff\"", `"\ud800"`, `"\udc00\ud800"`, `{"\ud800":1}`, "\"\ufffd\"",
		strings.Repeat("[", 101) + strings.Repeat("]", 101),
		strings.Repeat("[", 1<<20),
	} {
		if canonical, ok := idemhttp.CanonicalJSON([]byte(text)); ok {
			t.Errorf("%.40q became %q, want it refused", text, canonical)
		}
	}
}

func FuzzCanonicalJSON(f *testing.F) {
	for _, seed := range []string{`{"b":[1,{"c":null}],"a":"x"}`, `[true,false,-1.5e3]`, `"\u00e9\n"`, `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		canonical, ok := idemhttp.CanonicalJSON(text)
		if !ok {
			return
		}
		again, ok := idemhttp.CanonicalJSON(canonical)
		if !ok || !bytes.Equal(again, canonical) {
			t.Errorf("%q became %q and then %q", text, canonical, again)
		}
		if !reflect.DeepEqual(decode(t, text), decode(t, again)) {
			t.Errorf("%q and %q mean different things", text, again)
		}
		var wide bytes.Buffer
		if err := json.Indent(&wide, text, "\t", "  "); err != nil {
			t.Fatal(err)
		}
		if same, ok := idemhttp.CanonicalJSON(wide.Bytes()); !ok || !bytes.Equal(same, canonical) {
			t.Errorf("%q, with white space, became %q and not %q", text, same, canonical)
		}
	})
}

func decode(t *testing.T, text []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
