package csvfile

import "io"

// maxEmptyReads is how many reads may bring nothing before the input counts as broken.
const maxEmptyReads = 100

// window is the part of the input that is in memory: what has been read and not yet passed.
type window struct {
	src  io.Reader
	buf  []byte
	pos  int
	end  int
	off  int64 // input bytes before pos
	stop error // why reading ended: io.EOF, or the reader's error
}

func newWindow(src io.Reader, size int) *window {
	return &window{src: src, buf: make([]byte, size)}
}

// bytes are the bytes not yet passed. They are valid until the next fill.
func (w *window) bytes() []byte {
	return w.buf[w.pos:w.end]
}

// eof says that the input ends where bytes ends.
func (w *window) eof() bool {
	return w.stop == io.EOF
}

// pass drops the first n bytes.
func (w *window) pass(n int) {
	w.pos += n
	w.off += int64(n)
}

// fill reads on. When it returns nil, bytes has grown or eof has become true; otherwise
// it returns what stopped the input, and bytes is unchanged.
//
// It reads until the buffer is full: what waits for more is then scanned again only
// after the buffer has doubled, however small the pieces are in which the input comes.
func (w *window) fill() error {
	if w.stop != nil {
		return w.stop
	}
	w.makeRoom()
	had := w.end
	for empty := 0; w.end < len(w.buf) && w.stop == nil; {
		n, err := w.src.Read(w.buf[w.end:])
		w.end += n
		w.stop = err
		if n > 0 {
			empty = 0
		} else if empty++; empty == maxEmptyReads && err == nil {
			w.stop = io.ErrNoProgress
		}
	}
	if w.end == had && !w.eof() {
		return w.stop
	}
	return nil
}

// makeRoom moves what is unread to the front, and doubles a buffer that is full of it.
func (w *window) makeRoom() {
	if w.pos == 0 && w.end == len(w.buf) {
		grown := make([]byte, 2*len(w.buf))
		copy(grown, w.buf)
		w.buf = grown
		return
	}
	w.end = copy(w.buf, w.bytes())
	w.pos = 0
}
