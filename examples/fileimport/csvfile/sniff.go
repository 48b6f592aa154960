package csvfile

import (
	"bytes"
	"fmt"
)

const utf8Mark = "\xEF\xBB\xBF"

// signatures are the starts of files that are no UTF-8 text. UTF-32 stands before UTF-16,
// whose little-endian mark is the start of UTF-32's.
var signatures = []struct {
	start string
	is    FormatError
}{
	{"\xFF\xFE\x00\x00", notUTF8("UTF-32")},
	{"\x00\x00\xFE\xFF", notUTF8("UTF-32")},
	{"\xFF\xFE", notUTF8("UTF-16")},
	{"\xFE\xFF", notUTF8("UTF-16")},
	{"\x1F\x8B", notText("gzip-compressed data", "unpack it first: gzip -dc FILE > NEWFILE")},
	{"PK\x03\x04", notText("a zip archive or an Excel workbook (.xlsx)", "unpack it, or save the sheet as CSV UTF-8")},
	{"PK\x05\x06", notText("an empty zip archive", "")},
	{"\xD0\xCF\x11\xE0", notText("an old Excel workbook (.xls)", "save the sheet as CSV UTF-8")},
	{"\x28\xB5\x2F\xFD", notText("zstd-compressed data", "unpack it first: zstd -dc FILE > NEWFILE")},
	{"\xFD7zXZ\x00", notText("xz-compressed data", "unpack it first: xz -dc FILE > NEWFILE")},
	{"BZh91AY&SY", notText("bzip2-compressed data", "unpack it first: bzip2 -dc FILE > NEWFILE")},
}

// sniff looks at the first bytes of a file, lowestBufferSize or all of them.
func sniff(start []byte) error {
	for _, s := range signatures {
		if bytes.HasPrefix(start, []byte(s.start)) {
			is := s.is
			return &is
		}
	}
	return nil
}

// headerError turns a bad first record into the error of the whole file: without a header
// no record behind it can be judged, and the next line must not take its place.
func headerError(bad *RecordError) error {
	raw := bad.Raw
	if bytes.IndexByte(raw, 0) < 0 {
		return &FormatError{
			Reason: "the header can't be read: " + bad.Error(),
			Remedy: bad.remedy(),
		}
	}
	var is FormatError
	switch {
	case len(raw) > 1 && raw[0] != 0 && raw[1] == 0:
		is = wideText("UTF-16LE")
	case len(raw) > 1 && raw[0] == 0 && raw[1] != 0:
		is = wideText("UTF-16BE")
	default:
		is = notText("binary data (NUL bytes in the header)", "")
	}
	return &is
}

// remedy is what to do about the bad header: most text that isn't UTF-8 comes from Windows.
func (e *RecordError) remedy() string {
	if e.Reason != reasonUTF8 {
		return ""
	}
	return convert("WINDOWS-1252") + " (or from the encoding that it is in)"
}

func notUTF8(encoding string) FormatError {
	return FormatError{
		Reason: fmt.Sprintf("not UTF-8: it starts with a byte order mark of %s", encoding),
		Remedy: convert(encoding),
	}
}

func wideText(encoding string) FormatError {
	return notText(fmt.Sprintf("%s without a byte order mark (NUL bytes in the header)", encoding), convert(encoding))
}

func notText(looks, remedy string) FormatError {
	return FormatError{Reason: "not a CSV text file: it looks like " + looks, Remedy: remedy}
}

func convert(from string) string {
	return fmt.Sprintf("convert it first: iconv -f %s -t UTF-8 FILE > NEWFILE", from)
}
