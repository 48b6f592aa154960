package csvfile_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

const birdstrikes = "../testdata/birdstrikes.csv"

func TestNext_SplitsRecords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		in     string
		want   []item
		counts csvfile.Counts
	}{
		{name: "empty file"},
		{
			name:   "no line end at the end",
			in:     "a,b\n1,2",
			want:   []item{rec(1, "a,b", plain("a"), plain("b")), rec(2, "1,2", plain("1"), plain("2"))},
			counts: csvfile.Counts{Lines: 2, Header: 1, Records: 1},
		},
		{
			name:   "LF, CRLF and CR mixed",
			in:     "a\n1\r\n2\r3\r\n",
			want:   []item{rec(1, "a", plain("a")), rec(2, "1", plain("1")), rec(3, "2", plain("2")), rec(4, "3", plain("3"))},
			counts: csvfile.Counts{Lines: 4, Header: 1, Records: 3},
		},
		{
			name:   "CR only, and at the end",
			in:     "a\r1\r\r2\r",
			want:   []item{rec(1, "a", plain("a")), rec(2, "1", plain("1")), rec(4, "2", plain("2"))},
			counts: csvfile.Counts{Lines: 4, Header: 1, Blank: 1, Records: 2},
		},
		{
			name:   "LF then CR are two line ends",
			in:     "a\n\r1",
			want:   []item{rec(1, "a", plain("a")), rec(3, "1", plain("1"))},
			counts: csvfile.Counts{Lines: 3, Header: 1, Blank: 1, Records: 1},
		},
		{
			name:   "bytes inside quotes are kept and their line ends counted",
			in:     "a,b\r\n\"x\r\ny\rz\n\r\n\",1\r\n2,3\r\n",
			want:   []item{rec(1, "a,b", plain("a"), plain("b")), rec(2, "\"x\r\ny\rz\n\r\n\",1", quoted("x\r\ny\rz\n\r\n"), plain("1")), rec(7, "2,3", plain("2"), plain("3"))},
			counts: csvfile.Counts{Lines: 7, Header: 1, Continuation: 4, Records: 2},
		},
		{
			name:   "CR right before a closing quote",
			in:     "a\n\"x\r\"\n1",
			want:   []item{rec(1, "a", plain("a")), rec(2, "\"x\r\"", quoted("x\r")), rec(4, "1", plain("1"))},
			counts: csvfile.Counts{Lines: 4, Header: 1, Continuation: 1, Records: 2},
		},
		{
			name:   "a header over two lines",
			in:     "\"a\nb\",c\n1,2\n",
			want:   []item{rec(1, "\"a\nb\",c", quoted("a\nb"), plain("c")), rec(3, "1,2", plain("1"), plain("2"))},
			counts: csvfile.Counts{Lines: 3, Header: 1, Continuation: 1, Records: 1},
		},
		{
			name:   "blank lines before, between and after",
			in:     "\n\r\na\n\n\n1\n\r\n\r",
			want:   []item{rec(3, "a", plain("a")), rec(6, "1", plain("1"))},
			counts: csvfile.Counts{Lines: 8, Header: 1, Blank: 6, Records: 1},
		},
		{
			name:   "only blank lines",
			in:     "\n\n\r\n",
			counts: csvfile.Counts{Lines: 3, Blank: 3},
		},
		{
			name:   "quoted nothing and spaces are no blank lines",
			in:     "a\n\"\"\n  \n\t\n",
			want:   []item{rec(1, "a", plain("a")), rec(2, `""`, quoted("")), rec(3, "  ", plain("  ")), rec(4, "\t", plain("\t"))},
			counts: csvfile.Counts{Lines: 4, Header: 1, Records: 3},
		},
		{
			name:   "nothing and quoted nothing differ; the last field may be empty",
			in:     "a,b,c\n,\"\",\na,b,",
			want:   []item{rec(1, "a,b,c", plain("a"), plain("b"), plain("c")), rec(2, `,"",`, plain(""), quoted(""), plain("")), rec(3, "a,b,", plain("a"), plain("b"), plain(""))},
			counts: csvfile.Counts{Lines: 3, Header: 1, Records: 2},
		},
		{
			name:   "quoted delimiters and doubled quotes",
			in:     "a,b\n\"1,2\",\"say \"\"hi\"\"\"\n\"\"\"\",\"\"\"\"\"\"\n",
			want:   []item{rec(1, "a,b", plain("a"), plain("b")), rec(2, `"1,2","say ""hi"""`, quoted("1,2"), quoted(`say "hi"`)), rec(3, `"""",""""""`, quoted(`"`), quoted(`""`))},
			counts: csvfile.Counts{Lines: 3, Header: 1, Records: 2},
		},
		{
			name:   "a closing quote at the end of the file",
			in:     "a\n\"x\"",
			want:   []item{rec(1, "a", plain("a")), rec(2, `"x"`, quoted("x"))},
			counts: csvfile.Counts{Lines: 2, Header: 1, Records: 1},
		},
		{
			name:   "backslash and dot are data",
			in:     "a\n\\.\nx\\\n",
			want:   []item{rec(1, "a", plain("a")), rec(2, `\.`, plain(`\.`)), rec(3, `x\`, plain(`x\`))},
			counts: csvfile.Counts{Lines: 3, Header: 1, Records: 2},
		},
		{
			name:   "spaces around fields are data, as are control characters and other scripts",
			in:     "a,b\n x , \x01y\u2028\né,日本\n",
			want:   []item{rec(1, "a,b", plain("a"), plain("b")), rec(2, " x , \x01y\u2028", plain(" x "), plain(" \x01y\u2028")), rec(3, "é,日本", plain("é"), plain("日本"))},
			counts: csvfile.Counts{Lines: 3, Header: 1, Records: 2},
		},
		{
			name:   "UTF-8 byte order mark before a quote",
			in:     "\xEF\xBB\xBF\"a\"\n1",
			want:   []item{rec(1, `"a"`, quoted("a")), rec(2, "1", plain("1"))},
			counts: csvfile.Counts{Lines: 2, Header: 1, Records: 1},
		},
		{name: "a byte order mark and nothing else", in: "\xEF\xBB\xBF"},
		{
			name:   "a second byte order mark is data",
			in:     "\xEF\xBB\xBF\xEF\xBB\xBFa\n",
			want:   []item{rec(1, "\uFEFFa", plain("\uFEFFa"))},
			counts: csvfile.Counts{Lines: 1, Header: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			check(t, tt.in, csvfile.Options{}, tt.want, tt.counts)
		})
	}
}

func TestNext_OtherDelimiters(t *testing.T) {
	t.Parallel()
	for _, d := range []byte{';', '\t', '|', ' '} {
		in := strings.ReplaceAll("a#b\n1,2#\"x#y\"\n", "#", string(d))
		want := []item{
			rec(1, "a"+string(d)+"b", plain("a"), plain("b")),
			rec(2, "1,2"+string(d)+`"x`+string(d)+`y"`, plain("1,2"), quoted("x"+string(d)+"y")),
		}
		check(t, in, csvfile.Options{Delimiter: d}, want, csvfile.Counts{Lines: 2, Header: 1, Records: 1})
	}
}

func TestNewReader_RefusesBadOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []csvfile.Options{
		{Delimiter: '"'},
		{Delimiter: '\n'},
		{Delimiter: '\r'},
		{Delimiter: 0xA7},
		{MaxRecord: -1},
		{MaxRecord: 1<<30 + 1},
	} {
		if _, err := csvfile.NewReader(strings.NewReader(""), &o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := csvfile.NewReader(strings.NewReader(""), nil); err != nil {
		t.Errorf("nil options: %v", err)
	}
}

func TestNext_RecordsAreTheCallers(t *testing.T) {
	t.Parallel()
	r := newReader(t, strings.NewReader("a,b\n1,2\n3,4\n"), &csvfile.Options{BufferSize: 1})
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	_ = append(first.Fields, plain("over"))
	second, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if string(first.Raw) != "a,b" || string(second.Raw) != "1,2" || second.Fields[0] != plain("1") {
		t.Errorf("records changed: %+v, %+v", first, second)
	}
}

func TestNext_CompleteRecordsComeBeforeTheInputsError(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk gone")
	in := io.MultiReader(strings.NewReader("a,b\n1,2\n3,"), iotest.ErrReader(broken))
	r := newReader(t, in, nil)
	got, err := readAll(t, r)
	compare(t, "records", got, []item{rec(1, "a,b", plain("a"), plain("b")), rec(2, "1,2", plain("1"), plain("2"))})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "after line 2") {
		t.Errorf("error is %v", err)
	}
	if _, again := r.Next(); again != err {
		t.Errorf("Next again is %v, want %v", again, err)
	}
}

func TestNext_AnInputThatGivesNothingIsAnError(t *testing.T) {
	t.Parallel()
	r := newReader(t, stuck{}, nil)
	if _, err := r.Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("error is %v, want %v", err, io.ErrNoProgress)
	}
}

// stuck reads nothing, without an error.
type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestNext_RealFile(t *testing.T) {
	t.Parallel()
	f, err := os.Open(birdstrikes)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := newReader(t, f, nil)
	items, err := readAll(t, r)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Counts(), (csvfile.Counts{Lines: 10001, Header: 1, Records: 10000}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
	for i, it := range items {
		if it.line != int64(i+1) || len(it.fields) != 14 {
			t.Fatalf("item %d: line %d, %d fields", i, it.line, len(it.fields))
		}
	}
}

func TestNext_WhatItReturnedIsTheCallers(t *testing.T) {
	t.Parallel()
	// The buffer is so small that each record takes the place of the one before.
	in := "one,first\ntwo,\xFF\n" + strings.Repeat("x,yyyyyyyyyyyyyyyyyyyyyyyy\n", 10)
	r := newReader(t, strings.NewReader(in), &csvfile.Options{BufferSize: 1})
	head, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Next()
	var bad *csvfile.RecordError
	if !errors.As(err, &bad) {
		t.Fatalf("the second record: %v, want a *RecordError", err)
	}
	third, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _ = append(head.Fields, csvfile.Field{Value: "mine"}); third.Fields[0].Value != "x" {
		t.Errorf("what was appended to one record's fields is in another's: %q", third.Fields[0].Value)
	}
	if _, err := readAll(t, r); err != nil {
		t.Fatal(err)
	}
	if string(head.Raw) != "one,first" || string(bad.Raw) != "two,\xFF" || string(third.Raw) != "x,yyyyyyyyyyyyyyyyyyyyyyyy" {
		t.Errorf("after the others were read: %q, %q and %q", head.Raw, bad.Raw, third.Raw)
	}
}
