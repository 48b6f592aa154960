package pgtemp

import (
	"io"
	"strings"
	"sync"
)

// tailSize is how much of a server's output an error can show.
const tailSize = 4096

// tailLines is how many lines of it an error does show.
const tailLines = 12

// tail keeps the end of what is written to it and passes everything on.
type tail struct {
	next io.Writer // nil: nowhere

	mu  sync.Mutex
	buf []byte
}

// Write never fails: a reader that went away must not stop the server.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	if t.next != nil {
		_, _ = t.next.Write(p)
	}
	return len(p), nil
}

// lastLines are the last lines written, each indented on a line of its own, to be put
// behind an error's text; "" when nothing was written.
func (t *tail) lastLines() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.buf))
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "\n\t" + strings.Join(lines, "\n\t")
}
