package csvfile_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

const (
	bareQuote  = "a quote inside an unquoted field"
	afterQuote = "text after a closing quote"
	openQuote  = "the quote at the start of the field is never closed"
)

func TestNext_BadRecords(t *testing.T) {
	t.Parallel()
	// Each case is read behind the header a,b and before the record 8,9.
	head, tail := rec(1, "a,b", plain("a"), plain("b")), []csvfile.Field{plain("8"), plain("9")}
	for _, tt := range []struct {
		name string
		in   string
		want []item
		line int64 // of the record behind
		more int64 // continuation lines
	}{
		{name: "quote inside an unquoted field", in: "1,x\"y\n", want: []item{bad(2, 2, "1,x\"y", bareQuote)}, line: 3},
		{name: "quote after a space", in: "1, \"x\"\n", want: []item{bad(2, 2, `1, "x"`, bareQuote)}, line: 3},
		{name: "quote at the end of an unquoted field", in: "1\",2\r\n", want: []item{bad(2, 1, `1",2`, bareQuote)}, line: 3},
		{name: "text after a closing quote", in: "\"x\"y,2\n", want: []item{bad(2, 1, `"x"y,2`, afterQuote)}, line: 3},
		{name: "space after a closing quote", in: "1,\"x\" \r", want: []item{bad(2, 2, `1,"x" `, afterQuote)}, line: 3},
		{name: "NUL", in: "1,x\x00y\n", want: []item{bad(2, 2, "1,x\x00y", "a NUL byte")}, line: 3},
		{name: "NUL inside quotes over two lines", in: "\"1\n\x00\",2\n", want: []item{bad(2, 1, "\"1\n\x00\",2", "a NUL byte")}, line: 4, more: 1},
		{name: "Latin-1", in: "1,caf\xE9\n", want: []item{bad(2, 2, "1,caf\xE9", "not valid UTF-8")}, line: 3},
		{name: "surrogate", in: "\xED\xA0\x80,2\n", want: []item{bad(2, 1, "\xED\xA0\x80,2", "not valid UTF-8")}, line: 3},
		{name: "character torn by a delimiter", in: "\xC3,\xA9\n", want: []item{bad(2, 1, "\xC3,\xA9", "not valid UTF-8")}, line: 3},
		{name: "one field too many", in: "1,2,\n", want: []item{bad(2, 0, "1,2,", "has 3 fields, the header has 2")}, line: 3},
		{name: "one field", in: "1\n", want: []item{bad(2, 0, "1", "has 1 field, the header has 2")}, line: 3},
		{
			name: "a field too many in a record of two lines, which is passed whole",
			in:   "1,2,\"x\n3,4\"\n",
			want: []item{bad(2, 0, "1,2,\"x\n3,4\"", "has 3 fields, the header has 2")}, line: 4, more: 1,
		},
		{
			name: "a quote left open is closed by a later record's quote, and loses only its own line",
			in:   "\"1,2\n3,4\n5,\"6\"\n",
			want: []item{bad(2, 1, "\"1,2", afterQuote), rec(3, "3,4", plain("3"), plain("4")), rec(4, `5,"6"`, plain("5"), quoted("6"))}, line: 5,
		},
		{
			name: "a flaw in the second line of a record",
			in:   "\"1\n2\"x,3\n",
			want: []item{bad(2, 1, "\"1", afterQuote), bad(3, 1, "2\"x,3", bareQuote)}, line: 4,
		},
		{name: "two bad records in a row", in: "x\"\ny\"\n", want: []item{bad(2, 1, `x"`, bareQuote), bad(3, 1, `y"`, bareQuote)}, line: 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := append([]item{head}, tt.want...)
			want = append(want, rec(tt.line, "8,9", tail...))
			counts := csvfile.Counts{Lines: tt.line, Header: 1, Continuation: tt.more, Records: int64(len(tt.want)) + 1}
			for _, it := range tt.want {
				if it.bad != "" {
					counts.Bad++
				}
			}
			check(t, "a,b\n"+tt.in+"8,9", csvfile.Options{}, want, counts)
		})
	}
}

func TestNext_AnOpenQuoteAtTheEndLosesOnlyItsLine(t *testing.T) {
	t.Parallel()
	want := []item{
		rec(1, "a,b", plain("a"), plain("b")),
		bad(2, 2, `1,"open`, openQuote),
		rec(3, "3,4", plain("3"), plain("4")),
		rec(5, "5,6", plain("5"), plain("6")),
	}
	for _, end := range []string{"", "\n"} {
		counts := csvfile.Counts{Lines: 5, Header: 1, Blank: 1, Records: 3, Bad: 1}
		check(t, "a,b\n1,\"open\n3,4\n\n5,6"+end, csvfile.Options{}, want, counts)
	}
	last := []item{rec(1, "a", plain("a")), bad(2, 1, `"`, openQuote)}
	check(t, "a\n\"", csvfile.Options{}, last, csvfile.Counts{Lines: 2, Header: 1, Records: 1, Bad: 1})
}

func TestNext_MaxRecord(t *testing.T) {
	t.Parallel()
	const limit = 10
	long := fmt.Sprintf("longer than %d bytes", limit)
	open := long + " without the quote at the start of the field being closed"
	head := rec(1, "a", plain("a"))
	cut := func(line int64, raw string, n int64) item {
		return item{line: line, raw: raw, cut: n, bad: long}
	}
	for _, tt := range []struct {
		name string
		in   string
		want []item
		more int64
	}{
		{name: "just fits", in: "0123456789\r\n1", want: []item{rec(2, "0123456789", plain("0123456789")), rec(3, "1", plain("1"))}},
		{name: "just fits, CR", in: "0123456789\r1", want: []item{rec(2, "0123456789", plain("0123456789")), rec(3, "1", plain("1"))}},
		{name: "just fits, quoted", in: "\"01234567\"", want: []item{rec(2, `"01234567"`, quoted("01234567"))}},
		{name: "just fits, quoted newline", in: "\"0123\n567\"\n1", want: []item{rec(2, "\"0123\n567\"", quoted("0123\n567")), rec(4, "1", plain("1"))}, more: 1},
		{name: "one too long", in: "0123456789x\n1", want: []item{cut(2, "0123456789", 1), rec(3, "1", plain("1"))}},
		{name: "one too long at the end", in: "0123456789x", want: []item{cut(2, "0123456789", 1)}},
		{name: "two too long at the end", in: "0123456789xy", want: []item{cut(2, "0123456789", 2)}},
		{name: "far too long", in: strings.Repeat("0123456789", 100) + "\r\n1", want: []item{cut(2, "0123456789", 990), rec(3, "1", plain("1"))}},
		{
			name: "an open quote, whose lines are read one by one",
			in:   "\"123\n456\n789\n\n0",
			want: []item{bad(2, 1, "\"123", open), rec(3, "456", plain("456")), rec(4, "789", plain("789")), rec(6, "0", plain("0"))},
		},
		{
			name: "an open quote whose file ends just where the limit is noticed",
			in:   "\"123\n456\n789",
			want: []item{bad(2, 1, "\"123", open), rec(3, "456", plain("456")), rec(4, "789", plain("789"))},
		},
		{
			name: "a closed quote too far away",
			in:   "\"123\n456789\"\n1",
			want: []item{bad(2, 1, "\"123", open), bad(3, 1, "456789\"", bareQuote), rec(4, "1", plain("1"))},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := append([]item{head}, tt.want...)
			counts := csvfile.Counts{Header: 1, Continuation: tt.more, Records: int64(len(tt.want)), Lines: lines("a\n" + tt.in)}
			counts.Blank = counts.Lines - counts.Header - counts.Continuation - counts.Records
			for _, it := range tt.want {
				if it.bad != "" {
					counts.Bad++
				}
			}
			check(t, "a\n"+tt.in, csvfile.Options{MaxRecord: limit}, want, counts)
		})
	}
}

// A file of which every line has a flaw must not be read again from every line to its end: that
// would be 40 GB here.
func TestNext_ManyOpenQuotesAreReadInLinearTime(t *testing.T) {
	t.Parallel()
	const n = 100_000
	for _, line := range []string{"\"x\n", "\"x\"\"\n", "x,\"\n", "\"\"\"\n", "x\"\n"} {
		in := strings.NewReader("a\n\"open\n" + strings.Repeat("y\n", n) + strings.Repeat(line, n))
		r := newReader(t, in, nil)
		start := time.Now()
		for err := error(nil); err != io.EOF; {
			_, err = r.Next()
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%q: took %v", line, took)
		}
		if got := r.Counts().Lines; got != 2*n+2 {
			t.Errorf("%q: %d lines, want %d", line, got, 2*n+2)
		}
	}
}

func TestExpect(t *testing.T) {
	t.Parallel()
	r := newReader(t, strings.NewReader("a,b\n1,2\n1,2,3\n1,2,3,4\n1\n"), nil)
	next := func(want string) {
		t.Helper()
		_, err := r.Next()
		if err == nil {
			err = errors.New("ok")
		}
		if got := err.Error(); got != want {
			t.Errorf("Next is %s, want %s", got, want)
		}
	}
	next("ok")
	r.Expect(3)
	next(`line 2: has 2 fields, 3 expected: "1,2"`)
	next("ok")
	r.Expect(0)
	next("ok")
	next(`line 5: has 1 field, the header has 4: "1"`)
	next("EOF")
}

func TestRecordError_IsOneClearLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1,x\"y":         `line 2, field 2: a quote inside an unquoted field: "1,x\"y"`,
		"1,2,3":          `line 2: has 3 fields, the header has 2: "1,2,3"`,
		"\x1b[31m\n":     `line 2: has 1 field, the header has 2: "\x1b[31m"`,
		"\x00\xff,2":     `line 2, field 1: a NUL byte: "\x00\xff,2"`,
		"\"1\n2\",3,4\n": `line 2: has 3 fields, the header has 2: "\"1\n2\",3,4"`,
		strings.Repeat("x", 57) + "日本" + ",2,3":      `line 2: has 3 fields, the header has 2: "` + strings.Repeat("x", 57) + `日"...`,
		strings.Repeat("x", 58) + "日本" + ",2,3":      `line 2: has 3 fields, the header has 2: "` + strings.Repeat("x", 58) + `"...`,
		strings.Repeat("\x80", 100) + "," + "2,\"\"": `line 2, field 1: not valid UTF-8: "` + strings.Repeat(`\x80`, 60) + `"...`,
	} {
		r := newReader(t, strings.NewReader("a,b\n"+in), nil)
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		_, err := r.Next()
		if err == nil || err.Error() != want {
			t.Errorf("%q: error is\n%v, want\n%s", in, err, want)
		}
		if err != nil && (!utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\n\r\x00\x1b")) {
			t.Errorf("%q: error is not one printable line: %q", in, err)
		}
	}
}

func TestNext_ABadRecordIsTheCallers(t *testing.T) {
	t.Parallel()
	r := newReader(t, strings.NewReader("a\nx\"1\nx\"2\n"), &csvfile.Options{BufferSize: 1})
	var bad []*csvfile.RecordError
	for {
		_, err := r.Next()
		if err == io.EOF {
			break
		}
		var re *csvfile.RecordError
		if errors.As(err, &re) {
			bad = append(bad, re)
		}
	}
	if len(bad) != 2 || string(bad[0].Raw) != "x\"1" || string(bad[1].Raw) != "x\"2" {
		t.Errorf("bad records are %+v", bad)
	}
}
