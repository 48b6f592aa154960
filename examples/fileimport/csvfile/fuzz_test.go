package csvfile_test

import (
	"bytes"
	"encoding/csv"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

const mark = "\xEF\xBB\xBF"

// FuzzReader holds the reader to its promises on any bytes: no panic, no lost byte, true line
// numbers, no influence of the buffer, and the fields that encoding/csv finds where both read
// the file.
func FuzzReader(f *testing.F) {
	for _, in := range []string{
		"", "a,b\n1,2\n", "a\r1\r\n2\n\n", "\"a\r\nb\",c\n\"\"\"\",\n", mark + "a\n\"\"\n", "a\n\"open\n1\n",
		"a\nx\"y\n\"x\"y\n\x00\n\xff\n1,2\n", "a\n0123456789012345678901234567890\n", "\xFF\xFEa\x00", "a\n\\.\n", "\"a\n\",\"\r\"\r\n,\n",
	} {
		f.Add([]byte(in), uint8(0), uint8(20))
	}
	f.Fuzz(func(t *testing.T, in []byte, size, limit uint8) {
		opts := &csvfile.Options{MaxRecord: int(limit) + 1, BufferSize: int(size)}
		r := newReader(t, bytes.NewReader(in), opts)
		items, err := readAll(t, r)
		checkBytes(t, string(in), items, r, err)
		checkCut(t, in, opts, items, r.Counts(), err)
		whole, err := readAll(t, newReader(t, bytes.NewReader(in), &csvfile.Options{BufferSize: 4096}))
		if err == nil {
			checkEncoded(t, whole)
		}
		checkStandard(t, string(in), whole, err)
	})
}

// checkBytes walks through the file: between the items there are only line ends, each item
// stands on the line it says, and the counts add up to the lines of the file.
func checkBytes(t *testing.T, in string, items []item, r *csvfile.Reader, err error) {
	t.Helper()
	rest, passed := strings.CutPrefix(in, mark)
	body := rest
	if !passed {
		body = in
	}
	pos := 0
	skip := func() {
		for pos < len(body) && (body[pos] == '\n' || body[pos] == '\r') {
			pos++
		}
	}
	for _, it := range items {
		skip()
		if !strings.HasPrefix(body[pos:], it.raw) {
			t.Fatalf("line %d: %q is not what is at byte %d of %q", it.line, it.raw, pos, body)
		}
		if got := lines(body[:pos]) + 1; got != it.line {
			t.Fatalf("%q is on line %d, not %d", it.raw, got, it.line)
		}
		pos += len(it.raw) + int(it.cut)
	}
	skip()
	c := r.Counts()
	if sum := c.Header + c.Blank + c.Continuation + c.Records; sum != c.Lines {
		t.Fatalf("counts don't add up: %+v", c)
	}
	if err != nil {
		return
	}
	if pos != len(body) || c.Lines != lines(body) || r.Offset() != int64(len(in)) {
		t.Fatalf("%d of %d bytes, offset %d, %d lines of %d", pos, len(body), r.Offset(), c.Lines, lines(body))
	}
	if c.Header+c.Records != int64(len(items)) {
		t.Fatalf("%d items, counts %+v", len(items), c)
	}
}

// lines counts physical lines the slow way.
func lines(s string) int64 {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n")
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return int64(n)
}

// checkCut reads again in single bytes and a large buffer.
func checkCut(t *testing.T, in []byte, opts *csvfile.Options, items []item, counts csvfile.Counts, err error) {
	t.Helper()
	other := newReader(t, iotest.OneByteReader(bytes.NewReader(in)), &csvfile.Options{MaxRecord: opts.MaxRecord, BufferSize: 4096})
	got, otherErr := readAll(t, other)
	compare(t, "other buffer", got, items)
	if other.Counts() != counts || (err == nil) != (otherErr == nil) || err != nil && err.Error() != otherErr.Error() {
		t.Fatalf("%+v and %+v, %v and %v", other.Counts(), counts, otherErr, err)
	}
}

// checkEncoded writes the good records anew and reads the same fields from that.
func checkEncoded(t *testing.T, items []item) {
	t.Helper()
	var out strings.Builder
	var want []item
	for _, it := range items {
		if it.bad != "" {
			continue
		}
		raw := encode(it.fields)
		if raw == "" || len(want) == 0 && strings.HasPrefix(raw, mark) {
			t.Skip("a record that only its place in the file makes one")
		}
		want = append(want, rec(lines(out.String())+1, raw, it.fields...))
		out.WriteString(raw + "\n")
	}
	got, err := readAll(t, newReader(t, strings.NewReader(out.String()), nil))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "encoded", got, want)
}

func encode(fields []csvfile.Field) string {
	var out []string
	for _, f := range fields {
		v := f.Value
		if f.Quoted {
			v = `"` + strings.ReplaceAll(v, `"`, `""`) + `"`
		}
		out = append(out, v)
	}
	return strings.Join(out, ",")
}

// checkStandard compares with encoding/csv, which must agree on every file that is strict UTF-8
// without NUL bytes and without lone CRs, which it takes for text.
func checkStandard(t *testing.T, in string, items []item, err error) {
	t.Helper()
	body := strings.TrimPrefix(in, mark)
	if !utf8.ValidString(body) || strings.Contains(strings.ReplaceAll(body, "\r\n", ""), "\r") || strings.Contains(body, "\x00") {
		return
	}
	if strings.HasPrefix(body, "BZh91AY&SY") || strings.HasPrefix(body, "PK\x03\x04") || strings.HasPrefix(body, "PK\x05\x06") {
		return
	}
	r := csv.NewReader(strings.NewReader(body))
	var want [][]string
	for {
		record, csvErr := r.Read()
		if csvErr == io.EOF {
			break
		}
		if csvErr != nil {
			if clean(items, err) {
				t.Fatalf("encoding/csv refuses %q: %v", in, csvErr)
			}
			return
		}
		want = append(want, record)
	}
	if !clean(items, err) || len(items) != len(want) {
		t.Fatalf("encoding/csv reads %q as %q, error %v, items %+v", in, want, err, items)
	}
	for i, it := range items {
		for j, f := range it.fields {
			if got := strings.ReplaceAll(f.Value, "\r\n", "\n"); len(want[i]) != len(it.fields) || got != want[i][j] {
				t.Fatalf("record %d of %q is %+v, encoding/csv has %q", i, in, it.fields, want[i])
			}
		}
	}
}

func clean(items []item, err error) bool {
	for _, it := range items {
		if it.bad != "" {
			return false
		}
	}
	return err == nil
}
