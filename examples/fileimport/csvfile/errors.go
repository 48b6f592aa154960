package csvfile

import (
	"fmt"
	"unicode/utf8"
)

// excerptSize is how many bytes of a record an error's text shows.
const excerptSize = 60

// RecordError is one bad record after the header. The Reader has passed it, and the next
// call of Next reads on behind it.
type RecordError struct {
	// Line is the physical line on which the record starts.
	Line int64

	// Column is the 1-based field that is bad, or 0 if the record as a whole is.
	Column int

	// Raw is what was passed, without its line end: the record, or, when its quotes don't fit
	// together or it is too long, its first physical line. At most MaxRecord bytes.
	Raw []byte

	// Cut is how many bytes of a longer line Raw leaves out.
	Cut int64

	// Reason says what is wrong, in words for a person, without line and column.
	Reason string
}

// Error is one line with the place, the reason, and the start of the record in Go's quoting,
// which shows no binary data as such.
func (e *RecordError) Error() string {
	return fmt.Sprintf("%s: %s: %s", place(e.Line, e.Column), e.Reason, excerpt(e.Raw))
}

// FormatError says that the file can't be read as CSV at all: it's in another format or
// encoding, or its header is bad. It is final: Next returns it from then on.
type FormatError struct {
	// Reason says what is wrong, in words for a person.
	Reason string

	// Remedy says what to do about it; empty if there's no general one.
	Remedy string
}

// Error is one line with the reason and the remedy.
func (e *FormatError) Error() string {
	if e.Remedy == "" {
		return e.Reason
	}
	return e.Reason + "; " + e.Remedy
}

// flaw is what is wrong with a record, before its line and bytes are known.
type flaw struct {
	column int
	reason string
}

func place(line int64, column int) string {
	if column == 0 {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("line %d, field %d", line, column)
}

// excerpt quotes the start of text, cut between two characters.
func excerpt(text []byte) string {
	if len(text) <= excerptSize {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q...", text[:boundary(text, excerptSize)])
}

// boundary is the last index up to n, of a longer text, between two characters. In text that
// isn't UTF-8 it is at most 3 less than n.
func boundary[T string | []byte](text T, n int) int {
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			return i
		}
	}
	return n
}
