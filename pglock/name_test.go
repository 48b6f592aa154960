package pglock_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatepost/gatepost/pglock"
)

// FuzzName holds names and sequencers to one rule: what may be acquired can be handed
// on, and nothing else can.
func FuzzName(f *testing.F) {
	for _, name := range hostile {
		f.Add(name)
	}
	for _, name := range []string{"", "\x00", "a\x00", "\xff", "\xed\xa0\x80", strings.Repeat("x", 256), strings.Repeat("é", 128)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want := name != "" && len(name) <= 255 && utf8.ValidString(name) && !strings.Contains(name, "\x00")
		err := pglock.ValidateName(name)
		if (err == nil) != want || (err != nil && !errors.Is(err, pglock.ErrInvalidName)) {
			t.Fatalf("%q: %v, want it to be valid: %t", name, err, want)
		}
		seq, err := pglock.ParseSequencer("v1:exclusive:0:1:" + aNonce + ":" + percent(name))
		if (err == nil) != want {
			t.Fatalf("%q in a sequencer: %v, want it to be valid: %t", name, err, want)
		}
		if want && seq.Name() != name {
			t.Fatalf("%q became %q", name, seq.Name())
		}
	})
}
