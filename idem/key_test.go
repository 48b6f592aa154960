package idem_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatepost/gatepost/idem"
)

// visible is what the domain gatepost.idem_key takes.
var visible = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)

func nameable(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

// FuzzKey holds a key to its limits, and two keys to having nothing in common: not the
// lock, and not what a peer is asked by.
func FuzzKey(f *testing.F) {
	f.Add("payments.charge", "tenant-1", "k", "payments.charge", "tenant-1", "k")
	f.Add("a", "bc", "d", "ab", "c", "d")
	f.Add("a", "b", "cd", "a", "bc", "d")
	f.Add("", "", "", "\x00", "\xff", " ")
	f.Add(strings.Repeat("o", 201), strings.Repeat("é", 101), strings.Repeat("k", 256), "o", "s", "é")
	f.Fuzz(func(t *testing.T, operation, scope, key, operation2, scope2, key2 string) {
		a := idem.Key{Operation: operation, Scope: idem.Scope(scope), Key: key}
		b := idem.Key{Operation: operation2, Scope: idem.Scope(scope2), Key: key2}
		for _, k := range []idem.Key{a, b} {
			want := nameable(k.Operation, 200) && nameable(string(k.Scope), 200) && visible.MatchString(k.Key)
			err := idem.ValidateKey(k)
			if (err == nil) != want || (err != nil && !errors.Is(err, idem.ErrInvalidKey)) {
				t.Fatalf("%q: %v, want it to be valid: %t", k, err, want)
			}
			if len(k.Key) > 30 && err != nil && strings.Contains(err.Error(), k.Key) {
				t.Fatalf("the error repeats the key: %v", err)
			}
		}
		if same := a == b; (a.ExternalKey() == b.ExternalKey()) != same || (idem.Lock(a) == idem.Lock(b)) != same {
			t.Fatalf("%#v and %#v have external keys %s and %s, locks %d and %d", a, b, a.ExternalKey(), b.ExternalKey(), idem.Lock(a), idem.Lock(b))
		}
		if !visible.MatchString(a.ExternalKey()) || len(a.ExternalKey()) != 64 || a.ExternalKey() == a.ExternalKey("call") {
			t.Fatalf("external keys %q and %q", a.ExternalKey(), a.ExternalKey("call"))
		}
	})
}

// FuzzFingerprintOf cuts the same bytes at other places.
func FuzzFingerprintOf(f *testing.F) {
	f.Add([]byte("abc"), uint8(1), uint8(2))
	f.Add([]byte{}, uint8(0), uint8(0))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01a"), uint8(8), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, first, second uint8) {
		i, j := int(first)%(len(text)+1), int(second)%(len(text)+1)
		whole, cut, other := idem.FingerprintOf(text), idem.FingerprintOf(text[:i], text[i:]), idem.FingerprintOf(text[:j], text[j:])
		if whole == cut || (cut == other) != (i == j) {
			t.Fatalf("%q whole, cut at %d and at %d: %x, %x, %x", text, i, j, whole, cut, other)
		}
		if again := idem.FingerprintOf(bytes.Clone(text[:i]), bytes.Clone(text[i:])); again != cut {
			t.Fatalf("%q twice: %x and %x", text, cut, again)
		}
	})
}

// What is in the table, and at a peer, was made by an earlier release: one that made it in
// another way would refuse retries, and ask the peer for a second charge.
func TestKey_IsHashedAsItWasByEveryRelease(t *testing.T) {
	t.Parallel()
	print := idem.FingerprintOf([]byte("a"), nil, []byte("bc"))
	if got := hex.EncodeToString(print[:]); got != "fb9abcb07180be92066c09ce253c0a060e4634fe3accf064b556d89a691c8e5f" {
		t.Errorf("the fingerprint has become %s", got)
	}
	key := idem.Key{Operation: "payments.charge", Scope: "acme", Key: "9a1f27c0"}
	for want, got := range map[string]string{"6dbfcbddebaa4f942b1b4fccda0d8b0c154293564cb91e53d46ea9cd40c7592a": key.ExternalKey(), "46cef92c882146dcedc26c104f15503c21deda5af88a0848598ba6997e48c12a": key.ExternalKey("refund")} {
		if got != want {
			t.Errorf("the external key has become %s, want %s", got, want)
		}
	}
	// Of two releases side by side, each has to see what the other one is at.
	if got := idem.Lock(key); got != 5675206859096396824 {
		t.Errorf("the number of the lock has become %d", got)
	}
}

// A key may be what keeps a stranger from reading the reply: texts of errors and of logs
// are made of this.
func TestKey_IsNotInItsText(t *testing.T) {
	t.Parallel()
	key := idem.Key{Operation: "payments.charge", Scope: "acme", Key: "9a1f27c0"}
	for _, text := range []string{fmt.Sprint(key), fmt.Sprintf("%v %+v %s", key, key, key)} {
		if strings.Contains(text, key.Key) || !strings.Contains(text, key.Operation) || !strings.Contains(text, string(key.Scope)) {
			t.Errorf("the key is written as %q", text)
		}
	}
}
