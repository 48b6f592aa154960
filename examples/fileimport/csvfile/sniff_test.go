package csvfile_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

func TestNext_OtherFormatsAreNamed(t *testing.T) {
	t.Parallel()
	const notCSV = "not a CSV text file: it looks like "
	for _, tt := range []struct {
		name, in, want string
	}{
		{"UTF-16LE", "\xFF\xFEa\x00,\x00b\x00\n\x00", "not UTF-8: it starts with a byte order mark of UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 FILE > NEWFILE"},
		{"UTF-16BE", "\xFE\xFF\x00a", "not UTF-8: it starts with a byte order mark of UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 FILE > NEWFILE"},
		{"UTF-16 mark only", "\xFF\xFE", "iconv -f UTF-16 -t UTF-8"},
		{"UTF-32LE", "\xFF\xFE\x00\x00a\x00\x00\x00", "iconv -f UTF-32 -t UTF-8"},
		{"UTF-32BE", "\x00\x00\xFE\xFF\x00\x00\x00a", "iconv -f UTF-32 -t UTF-8"},
		{"UTF-16LE without mark", "a\x00,\x00b\x00\n\x00", notCSV + "UTF-16LE without a byte order mark (NUL bytes in the header); convert it first: iconv -f UTF-16LE -t UTF-8 FILE > NEWFILE"},
		{"UTF-16BE without mark", "\x00a\x00,\x00b\x00\n", notCSV + "UTF-16BE without"},
		{"UTF-16LE without mark, quoted", "\"\x00a\x00\"\x00,\x00b\x00\n\x00", notCSV + "UTF-16LE without"},
		{"gzip", "\x1F\x8B\x08\x00\x00", notCSV + "gzip-compressed data; unpack it first: gzip -dc FILE > NEWFILE"},
		{"zip", "PK\x03\x04\x14\x00", notCSV + "a zip archive or an Excel workbook (.xlsx); unpack it"},
		{"empty zip", "PK\x05\x06\x00\x00", notCSV + "an empty zip archive"},
		{"xls", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", notCSV + "an old Excel workbook (.xls)"},
		{"zstd", "\x28\xB5\x2F\xFD\x24", notCSV + "zstd"},
		{"xz", "\xFD7zXZ\x00\x00", notCSV + "xz"},
		{"bzip2", "BZh91AY&SY\x00", notCSV + "bzip2"},
		{"NUL bytes in the header", "ELF,\x00\x01\x02\n1,2\n", notCSV + "binary data (NUL bytes in the header)"},
		{"NUL bytes in a flawed header", "x\"\x00\n", notCSV + "binary data"},
		{"Latin-1 header", "caf\xE9,b\n1,2\n", `the header can't be read: line 1, field 1: not valid UTF-8: "caf\xe9,b"; convert it first: iconv -f WINDOWS-1252 -t UTF-8`},
		{"flawed header", "a,\"b\n1,2\n", `the header can't be read: line 1, field 2: the quote at the start of the field is never closed: "a,\"b"`},
		{"too long header", strings.Repeat("x", 200) + "\n1,2\n", "the header can't be read: line 1: longer than 100 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, v := range variants {
				r := newReader(t, v.wrap(strings.NewReader(tt.in)), &csvfile.Options{MaxRecord: 100, BufferSize: v.size})
				_, err := r.Next()
				var fe *csvfile.FormatError
				if !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), tt.want) && !strings.Contains(fe.Remedy, tt.want) {
					t.Errorf("%s: error is %v, want %s", name, err, tt.want)
				}
				if _, again := r.Next(); again != err {
					t.Errorf("%s: Next again is %v", name, again)
				}
			}
		})
	}
}

// Words that are the start of a signature are only words.
func TestNext_TextThatStartsLikeASignatureIsText(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"PK,b\n", "BZh9,b\n", "P", "B", "(,b"} {
		r := newReader(t, strings.NewReader(in), nil)
		if _, err := r.Next(); err != nil {
			t.Errorf("%q: %v", in, err)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%q: %v, want io.EOF", in, err)
		}
	}
}

func TestNext_TheNextLineDoesNotTakeABadHeadersPlace(t *testing.T) {
	t.Parallel()
	r := newReader(t, strings.NewReader("a\"b,c\n1,2\n3,4\n"), nil)
	items, err := readAll(t, r)
	var fe *csvfile.FormatError
	if len(items) > 0 || !errors.As(err, &fe) {
		t.Errorf("items %+v, error %v", items, err)
	}
	if got, want := r.Counts(), (csvfile.Counts{Lines: 1, Header: 1}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
}
