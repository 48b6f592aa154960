package csvfile

import (
	"fmt"
	"unicode/utf8"
)

const (
	defaultMaxRecord  = 64 << 20
	highestMaxRecord  = 1 << 30
	defaultBufferSize = 256 << 10
	lowestBufferSize  = 16 // the longest signature that sniff looks for fits
)

// Options adjusts a Reader. The zero value, and nil, read plain comma-separated text.
type Options struct {
	// Delimiter stands between fields. Any ASCII character but NUL, a quote and the line
	// ends. Defaults to a comma.
	Delimiter byte

	// MaxRecord is how many bytes a record may have, without its line end; it also bounds
	// the memory of the Reader, which is a few times as much at worst. Defaults to 64 MiB, at
	// most 1 GiB, which is PostgreSQL's limit of a value.
	MaxRecord int

	// BufferSize is how many bytes are read at once, until a longer record makes the buffer
	// grow. It never changes what is read. Defaults to 256 KiB, at least 16 bytes.
	BufferSize int
}

// withDefaults returns o with every default filled in, or what is wrong with it.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Delimiter == 0 {
		out.Delimiter = ','
	}
	if out.MaxRecord == 0 {
		out.MaxRecord = defaultMaxRecord
	}
	if out.BufferSize == 0 {
		out.BufferSize = defaultBufferSize
	}
	out.BufferSize = max(out.BufferSize, lowestBufferSize)
	return out, out.check()
}

func (o *Options) check() error {
	if c := o.Delimiter; c >= utf8.RuneSelf || c == '"' || c == '\n' || c == '\r' {
		return fmt.Errorf("the delimiter can't be %q: an ASCII character other than a quote or a line end is needed", []byte{c})
	}
	if o.MaxRecord < 1 || o.MaxRecord > highestMaxRecord {
		return fmt.Errorf("a record of at most %d bytes can't be asked for: 1 to %d are possible", o.MaxRecord, highestMaxRecord)
	}
	return nil
}
