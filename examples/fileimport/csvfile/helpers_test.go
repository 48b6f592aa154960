package csvfile_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

// item is what one call of Next returned.
type item struct {
	line   int64
	raw    string
	fields []csvfile.Field
	column int
	cut    int64
	bad    string // reason of a RecordError
}

// plain and quoted make fields.
func plain(v string) csvfile.Field  { return csvfile.Field{Value: v} }
func quoted(v string) csvfile.Field { return csvfile.Field{Value: v, Quoted: true} }

func rec(line int64, raw string, fields ...csvfile.Field) item {
	return item{line: line, raw: raw, fields: fields}
}

func bad(line int64, column int, raw, reason string) item {
	return item{line: line, column: column, raw: raw, bad: reason}
}

func newReader(tb testing.TB, in io.Reader, opts *csvfile.Options) *csvfile.Reader {
	tb.Helper()
	r, err := csvfile.NewReader(in, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// readAll reads to the final error, which is nil for io.EOF.
func readAll(tb testing.TB, r *csvfile.Reader) ([]item, error) {
	tb.Helper()
	var items []item
	for {
		rec, err := r.Next()
		var re *csvfile.RecordError
		switch {
		case err == nil:
			items = append(items, item{line: rec.Line, raw: string(rec.Raw), fields: rec.Fields})
		case errors.As(err, &re):
			items = append(items, item{line: re.Line, raw: string(re.Raw), column: re.Column, cut: re.Cut, bad: re.Reason})
		case errors.Is(err, io.EOF):
			return items, nil
		default:
			return items, err
		}
	}
}

// variants are ways to get the same bytes that must make no difference.
var variants = map[string]struct {
	wrap func(io.Reader) io.Reader
	size int
}{
	"whole":           {func(r io.Reader) io.Reader { return r }, 0},
	"small buffer":    {func(r io.Reader) io.Reader { return r }, 1},
	"odd buffer":      {func(r io.Reader) io.Reader { return r }, 17},
	"byte by byte":    {iotest.OneByteReader, 0},
	"bytes and small": {iotest.OneByteReader, 16},
	"half reads":      {iotest.HalfReader, 19},
	"data with EOF":   {iotest.DataErrReader, 16},
}

// check reads in every variant and compares records and counts.
func check(t *testing.T, in string, opts csvfile.Options, want []item, counts csvfile.Counts) {
	t.Helper()
	for name, v := range variants {
		opts.BufferSize = v.size
		r := newReader(t, v.wrap(strings.NewReader(in)), &opts)
		got, err := readAll(t, r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		compare(t, name, got, want)
		if got := r.Counts(); got != counts {
			t.Errorf("%s: counts are %+v, want %+v", name, got, counts)
		}
		if got := r.Offset(); got != int64(len(in)) {
			t.Errorf("%s: offset is %d, want %d", name, got, len(in))
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: Next after the end is %v, want io.EOF", name, err)
		}
	}
}

func compare(t *testing.T, name string, got, want []item) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: item %d is missing: %+v", name, i, want[i])
		case i >= len(want):
			t.Errorf("%s: item %d is not expected: %+v", name, i, got[i])
		case !reflect.DeepEqual(got[i], want[i]):
			t.Errorf("%s: item %d is\n%+v, want\n%+v", name, i, got[i], want[i])
		}
	}
}
