package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/term"
)

// report tells a person, or a program, how an import goes. Results go to out,
// everything else to notes.
type report struct {
	out, notes io.Writer
	json       bool
	drawn      *bool // whether the progress line stands on the terminal
}

func newReport(out, notes io.Writer, asJSON bool) report {
	return report{out: out, notes: notes, json: asJSON, drawn: new(bool)}
}

// clear takes the progress line away.
func (r report) clear() {
	if *r.drawn {
		fmt.Fprint(r.notes, "\r\x1b[K")
		*r.drawn = false
	}
}

// note says something on the way.
func (r report) note(format string, args ...any) {
	r.clear()
	fmt.Fprintf(r.notes, format+"\n", args...)
}

// progress redraws one line on a terminal and prints nothing elsewhere.
func (r report) progress(s *source) func(tally) {
	file, ok := r.notes.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func(tally) {}
	}
	return func(t tally) {
		r.clear()
		if t.Records == s.counts.Records {
			return
		}
		line := fmt.Sprintf("%d of %d records committed (%d %%) of %s",
			t.Records, s.counts.Records, t.Records*100/s.counts.Records, s.path)
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && len(line) >= width && width > 0 {
			line = strings.ToValidUTF8(line[:width-1], "") // one that wraps can't be redrawn
		}
		fmt.Fprint(file, line)
		*r.drawn = true
	}
}

// result prints the counts of a file.
func (r report) result(s *source, table pgx.Identifier, t tally) error {
	if r.json {
		return json.NewEncoder(r.out).Encode(struct {
			File  string `json:"file"`
			Table string `json:"table"`
			tally
		}{s.path, table.Sanitize(), t})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s -> %s\n", s.path, table.Sanitize())
	for _, line := range []struct {
		what string
		n    int64
	}{
		{"records", t.Records},
		{"inserted", t.Inserted},
		{"already there", t.Existed},
		{"duplicate in file", t.Duplicate},
		{"changed, left alone", t.Changed},
		{"rejected", t.Rejected},
	} {
		if line.what == "changed, left alone" && line.n == 0 {
			continue // it can't happen but with a natural key
		}
		fmt.Fprintf(&b, "  %-20s %10d\n", line.what, line.n)
	}
	if t.Rejected > 0 {
		fmt.Fprintln(&b, "  the rejected records are in gatepost.import_rejects, with line and reason")
	}
	_, err := io.WriteString(r.out, b.String())
	return err
}
