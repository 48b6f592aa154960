package pglock_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/quick"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

const aNonce = "0123abcd-4567-4abc-8def-0123456789ab"

// hostile are names that try to break a text form, a URL or a statement.
var hostile = []string{
	"a", ":", "a:b:c", "/", "a/b?c#d", "%", "%41", "100%", "line\nline\r\n", "tab\t", " spaces ", "é", "e\u0301", "😀",
	`'; DROP TABLE x; --`, `"$1"`, `\`, "\u202e", strings.Repeat("x", 255), strings.Repeat("é", 127) + "x", "+", "v1:exclusive:0:1:" + aNonce + ":x",
}

func TestSequencer_RoundTripsHostileNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{})
	for i, name := range hostile {
		if len(name) < 230 { // in the shared database, so with something unique
			name += pgtest.Name(t)[:20]
		} else {
			name = fmt.Sprintf("%02d", i) + name[2:]
		}
		l, err := c.TryAcquire(t.Context(), name, nil)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		want := l.Sequencer()
		got, err := pglock.ParseSequencer(want.String())
		if err != nil || got != want || got.Name() != name || got.Token() != l.Token() {
			t.Errorf("%q became %q: %v", name, got.Name(), err)
		}
		if strings.ContainsAny(want.String(), "\r\n\t /?#\"") {
			t.Errorf("%q is not one plain word", want)
		}
		text, err := json.Marshal(map[string]pglock.Sequencer{"s": want})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]pglock.Sequencer
		if err := json.Unmarshal(text, &back); err != nil || back["s"] != want {
			t.Errorf("%q through JSON became %v: %v", name, back, err)
		}
		if !strings.Contains(string(text), `"s":"v1:exclusive:0:`) {
			t.Errorf("JSON is %s, want a string", text)
		}
	}
}

func TestParseSequencer_UndoesString(t *testing.T) {
	t.Parallel()
	same := func(name string, token int64, slot int32) bool {
		name = strings.ToValidUTF8(strings.ReplaceAll(name, "\x00", ""), "")
		if name == "" || len(name) > 255 {
			return true
		}
		token, slot = token&math.MaxInt64|1, slot&math.MaxInt32
		text := fmt.Sprintf("v1:exclusive:%d:%d:%s:", slot, token, aNonce)
		seq, err := pglock.ParseSequencer(text + percent(name))
		if err != nil {
			return false
		}
		again, err := pglock.ParseSequencer(seq.String())
		return err == nil && again == seq && again.Name() == name && again.Token() == token && strings.HasPrefix(again.String(), text)
	}
	if err := quick.Check(same, &quick.Config{MaxCount: 500}); err != nil {
		t.Error(err)
	}
}

// percent encodes each byte.
func percent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

var malformed = []string{
	"", ":", ":::::", "x", "v1", "v1:exclusive:0:1:" + aNonce, "v2:exclusive:0:1:" + aNonce + ":x", "v1:shared:0:1:" + aNonce + ":x",
	"v1:exclusive:-1:1:" + aNonce + ":x", "v1:exclusive:2147483648:1:" + aNonce + ":x", "v1:exclusive::1:" + aNonce + ":x",
	"v1:exclusive:0:0:" + aNonce + ":x", "v1:exclusive:0:-5:" + aNonce + ":x", "v1:exclusive:0:9223372036854775808:" + aNonce + ":x",
	"v1:exclusive:0:1.5:" + aNonce + ":x", "v1:exclusive:0:1:nonce:x", "v1:exclusive:0:1:" + strings.ReplaceAll(aNonce, "-", "") + ":x",
	"v1:exclusive:0:1:" + strings.Repeat("g", 36) + ":x", "v1:exclusive:0:1:{" + aNonce[1:35] + "}:x",
	"v1:exclusive:0:1:" + aNonce + ":", "v1:exclusive:0:1:" + aNonce + ":%", "v1:exclusive:0:1:" + aNonce + ":%zz",
	"v1:exclusive:0:1:" + aNonce + ":%00", "v1:exclusive:0:1:" + aNonce + ":%ff", "v1:exclusive:0:1:" + aNonce + ":" + strings.Repeat("x", 256),
}

func TestParseSequencer_RefusesTheMalformed(t *testing.T) {
	t.Parallel()
	for _, text := range malformed {
		_, err := pglock.ParseSequencer(text)
		wantErr(t, err, pglock.ErrInvalidSequencer)
		if strings.Contains(err.Error(), aNonce) {
			t.Errorf("error repeats the nonce: %v", err)
		}
		seq := parsed(t, "v1:exclusive:0:7:"+aNonce+":kept")
		wantErr(t, seq.UnmarshalText([]byte(text)), pglock.ErrInvalidSequencer)
		if seq.Token() != 7 || seq.Name() != "kept" {
			t.Error("an error changed the sequencer")
		}
	}
	if zero := (pglock.Sequencer{}); !zero.IsZero() || zero.String() != "" {
		t.Errorf("the zero value is %q", zero)
	}
}

func FuzzParseSequencer(f *testing.F) {
	for _, text := range malformed {
		f.Add(text)
	}
	for _, name := range hostile {
		f.Add("v1:exclusive:0:1:" + aNonce + ":" + percent(name))
	}
	f.Fuzz(func(t *testing.T, text string) {
		seq, err := pglock.ParseSequencer(text)
		if err != nil {
			wantErr(t, err, pglock.ErrInvalidSequencer)
			return
		}
		if again, err := pglock.ParseSequencer(seq.String()); err != nil || again != seq {
			t.Errorf("%q became %q: %v", text, again, err)
		}
	})
}
