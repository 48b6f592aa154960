package csvfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Reader reads a CSV file record by record. It may not be used concurrently.
type Reader struct {
	in     *window
	scan   *scanner
	make   maker
	limit  int // MaxRecord
	begun  bool
	want   int // fields of a record; 0 before it is known
	asked  bool
	counts Counts
	final  error // what every further Next returns
}

// NewReader returns a Reader of r; nil options are the defaults. It reads nothing yet. An
// error is one of the options'.
func NewReader(r io.Reader, opts *Options) (*Reader, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Reader{
		in:    newWindow(r, o.BufferSize),
		scan:  newScanner(o.Delimiter),
		limit: o.MaxRecord,
	}, nil
}

// Next returns the next record. The first is the header.
//
// A record that is bad is a *RecordError; it has been passed and counted, and the next call
// reads on. When its content is bad (a NUL byte, invalid UTF-8, another number of fields), all
// of the record has been passed. When its quotes don't fit together, or no end of it is found
// within MaxRecord bytes or before the end of the file, only its first physical line has: a
// quote left open must not take the good records behind it along.
//
// Every other error is final and returned from then on: io.EOF after the last record,
// *FormatError for a file that isn't CSV or has a bad header, and the error of the input, before
// which all records that are complete have been returned.
func (r *Reader) Next() (Record, error) {
	if r.final != nil {
		return Record{}, r.final
	}
	rec, err := r.next()
	if err == nil {
		return rec, nil
	}
	if _, ok := errors.AsType[*RecordError](err); !ok {
		r.final = err
	}
	return Record{}, err
}

// Expect sets how many fields each further record must have, the header included if it is yet
// to come. Zero means as many as the next record has; without Expect that is the header.
func (r *Reader) Expect(fields int) {
	r.want, r.asked = fields, fields > 0
}

// Counts says what has been passed so far, the last record included.
func (r *Reader) Counts() Counts {
	return r.counts
}

// Offset is how many bytes of the input have been passed so far: the last record and its
// line end, and a byte order mark, are included.
func (r *Reader) Offset() int64 {
	return r.in.off
}

func (r *Reader) next() (Record, error) {
	if err := r.begin(); err != nil {
		return Record{}, err
	}
	if err := r.skipBlank(); err != nil {
		return Record{}, err
	}
	found, err := r.find()
	if err != nil {
		return Record{}, err
	}
	if found == broken {
		return Record{}, r.rejectLine(r.scan.flaw)
	}
	if bad := r.judge(); bad != nil {
		return Record{}, r.rejectRecord(bad)
	}
	return r.accept(), nil
}

// begin looks at the start of the file, once, and passes a byte order mark.
func (r *Reader) begin() error {
	if r.begun {
		return nil
	}
	if err := r.fill(); err != nil {
		return err
	}
	if err := sniff(r.in.bytes()); err != nil {
		return err
	}
	if bytes.HasPrefix(r.in.bytes(), []byte(utf8Mark)) {
		r.in.pass(len(utf8Mark))
	}
	r.begun = true
	return nil
}

// skipBlank passes line ends up to the next record, and is io.EOF if there is none.
func (r *Reader) skipBlank() error {
	for {
		data := r.in.bytes()
		n, ok := lineEnd(data, r.in.eof())
		switch {
		case !ok:
			if err := r.fill(); err != nil {
				return err
			}
		case n > 0:
			r.in.pass(n)
			r.counts.blank()
		case len(data) == 0:
			return io.EOF
		default:
			return nil
		}
	}
}

// find scans the record at the start of the window, reading on as needed. It returns whole or
// broken.
func (r *Reader) find() (outcome, error) {
	// A record of limit bytes, and the two bytes that its CRLF takes: enough to decide.
	enough := r.limit + len("\r\n")
	for {
		data, final := r.in.bytes(), r.in.eof()
		if len(data) >= enough {
			// Also when the input ends right here: that may not have been noticed yet, and
			// the result may not depend on it.
			data, final = data[:enough], false
		}
		found := r.scan.scan(data, final)
		if found == more && len(data) == enough || found == whole && r.scan.length > r.limit {
			r.scan.flaw = r.tooLong()
			found = broken
		}
		if found != more {
			return found, nil
		}
		if err := r.fill(); err != nil {
			return more, err
		}
	}
}

// accept passes the record that find found and returns it.
func (r *Reader) accept() Record {
	rec := r.make.record(r.counts.Lines+1, r.in.bytes()[:r.scan.length], r.scan.marks)
	if r.want == 0 {
		r.want = len(rec.Fields)
	}
	r.in.pass(r.scan.size)
	r.counts.record(r.scan.breaks)
	return rec
}

// fill reads on, and names the place if the input fails.
func (r *Reader) fill() error {
	if err := r.in.fill(); err != nil {
		return fmt.Errorf("read after line %d: %w", r.counts.Lines, err)
	}
	return nil
}
