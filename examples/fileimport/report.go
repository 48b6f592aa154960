package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5"
	"golang.org/x/term"
)

// report tells a person, or a program, how an import goes. Results go to out,
// everything else to notes.
type report struct {
	out, notes io.Writer
	json       bool
}

// note says something on the way.
func (r report) note(format string, args ...any) {
	fmt.Fprintf(r.notes, format+"\n", args...)
}

// progress redraws one line on a terminal and prints nothing elsewhere.
func (r report) progress(s *source) func(tally) {
	file, ok := r.notes.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func(tally) {}
	}
	return func(t tally) {
		if t.Records == s.counts.Records {
			fmt.Fprint(file, "\r\x1b[K")
			return
		}
		fmt.Fprintf(file, "\r\x1b[K%s: %d of %d records committed (%d %%)",
			s.path, t.Records, s.counts.Records, t.Records*100/s.counts.Records)
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
	fmt.Fprintf(r.out, "%s -> %s\n", s.path, table.Sanitize())
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
		fmt.Fprintf(r.out, "  %-20s %10d\n", line.what, line.n)
	}
	if t.Rejected > 0 {
		fmt.Fprintln(r.out, "  the rejected records are in gatepost.import_rejects, with line and reason")
	}
	return nil
}
