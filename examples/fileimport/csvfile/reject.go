package csvfile

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

const (
	reasonNUL  = "a NUL byte"
	reasonUTF8 = "not valid UTF-8"
)

// judge returns what is wrong with the content of the record that find found, or nil.
func (r *Reader) judge() *flaw {
	raw := r.in.bytes()[:r.scan.length]
	if bytes.IndexByte(raw, 0) >= 0 {
		return &flaw{r.columnWhere(raw, hasNUL), reasonNUL}
	}
	if !utf8.Valid(raw) {
		return &flaw{r.columnWhere(raw, notUTF8Text), reasonUTF8}
	}
	if got := len(r.scan.marks); r.want > 0 && got != r.want {
		return &flaw{reason: r.countReason(got)}
	}
	return nil
}

// columnWhere is the first field of which is holds.
func (r *Reader) columnWhere(raw []byte, is func([]byte) bool) int {
	for i, k := range r.scan.marks {
		if is(raw[k.start:k.end]) {
			return i + 1
		}
	}
	return 0
}

func hasNUL(text []byte) bool      { return bytes.IndexByte(text, 0) >= 0 }
func notUTF8Text(text []byte) bool { return !utf8.Valid(text) }

func (r *Reader) countReason(got int) string {
	fields := "fields"
	if got == 1 {
		fields = "field"
	}
	if r.asked {
		return fmt.Sprintf("has %d %s, %d expected", got, fields, r.want)
	}
	return fmt.Sprintf("has %d %s, the header has %d", got, fields, r.want)
}

// tooLong is the flaw of a record that has no end within the limit. If that's for a quote, it
// says which.
func (r *Reader) tooLong() *flaw {
	f := &flaw{reason: fmt.Sprintf("longer than %d bytes", r.limit)}
	if r.scan.inside {
		f.column = r.scan.column()
		f.reason += " without the quote at the start of the field being closed"
	}
	return f
}

// rejectRecord passes the whole record that find found, as a bad one.
func (r *Reader) rejectRecord(f *flaw) error {
	e := r.recordError(f, r.in.bytes()[:r.scan.length])
	r.in.pass(r.scan.size)
	return r.reject(e, r.scan.breaks)
}

// rejectLine passes the first physical line of the record, whatever its quotes, as a bad one.
//
// No byte is read again more than a few times for that, even if every line has a flaw: a line
// that leaves a quote open ends, by its own quote, the open quote of any line before it.
func (r *Reader) rejectLine(f *flaw) error {
	line, err := r.firstLine()
	if err != nil {
		return err
	}
	e := r.recordError(f, line)
	r.in.pass(len(line))
	if e.Cut, err = r.passLine(); err != nil {
		return err
	}
	return r.reject(e, 0)
}

// firstLine is the physical line at the start of the window, or the first limit bytes of it.
func (r *Reader) firstLine() ([]byte, error) {
	for {
		data := r.in.bytes()
		n := nextLineEnd(data[:min(len(data), r.limit)])
		if n < len(data) || r.in.eof() {
			return data[:n], nil
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// passLine passes the rest of a physical line and its line end, keeping nothing of it, and
// returns how many bytes that were without the line end.
func (r *Reader) passLine() (int64, error) {
	for rest := int64(0); ; {
		n := nextLineEnd(r.in.bytes())
		r.in.pass(n)
		rest += int64(n)
		if size, ok := lineEnd(r.in.bytes(), r.in.eof()); ok {
			r.in.pass(size)
			return rest, nil
		}
		if err := r.fill(); err != nil {
			return rest, err
		}
	}
}

// recordError is the error of the record at the start of the window.
func (r *Reader) recordError(f *flaw, raw []byte) *RecordError {
	return &RecordError{
		Line:   r.counts.Lines + 1,
		Column: f.column,
		Raw:    bytes.Clone(raw),
		Reason: f.reason,
	}
}

// reject counts a bad record that has been passed. A bad header is the end of the file.
func (r *Reader) reject(e *RecordError, breaks int) error {
	header := r.counts.Header == 0
	r.counts.record(breaks)
	if header {
		return headerError(e)
	}
	r.counts.Bad++
	return e
}
