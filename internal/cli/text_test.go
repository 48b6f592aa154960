package cli_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
)

func TestPrintable_LetsNothingActOnTheTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"reports/daily": "reports/daily",
		"größe 日本":      "größe 日本",
		"a\nb\tc":       `a\nb\tc`,
		"\x1b[31mred":   `\x1b[31mred`,
		"a\u202eb":      `a\u202eb`,
		"a\x9bb":        `a�b`,
		`it's`:          `it's`,
	} {
		if got := cli.Printable(text); got != want {
			t.Errorf("Printable(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestCut_CountsColumns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"日本語", 5, "日本…"},
		{"日本語", 4, "日…"},
		{"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"},
		{"abcd", 1, "…"},
		{"abcd", 0, ""},
	} {
		if got := cli.Cut(c.text, c.most); got != c.want {
			t.Errorf("Cut(%q, %d) is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestDuration_IsAsPeopleReadIt(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration][2]string{
		0:                                {"0.0 s", "0.0 s"},
		450 * time.Millisecond:           {"0.4 s", "0.4 s"},
		-12900 * time.Millisecond:        {"12 s", "12 s"},
		200 * time.Second:                {"3 min 20 s", "3 min"},
		time.Hour:                        {"1 h", "1 h"},
		5*time.Hour + 12*time.Minute:     {"5 h 12 min", "5 h"},
		76 * time.Hour:                   {"3 d 4 h", "3 d"},
		24*time.Hour - time.Nanosecond:   {"23 h 59 min", "23 h"},
		time.Minute - time.Millisecond:   {"59 s", "59 s"},
		time.Second - time.Microsecond:   {"0.9 s", "0.9 s"},
		365*24*time.Hour + 3*time.Minute: {"365 d", "365 d"},
	} {
		if got := [2]string{cli.Duration(d), cli.Coarse(d)}; got != want {
			t.Errorf("%d ns is %q, want %q", d, got, want)
		}
	}
}
