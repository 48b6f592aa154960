package idemhttp

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// recorder is the ResponseWriter of one run of a handler. It keeps the reply until
// the transaction is committed. It has no Flush, and no Unwrap that would lead past
// it: http.ResponseController answers http.ErrNotSupported.
type recorder struct {
	notes
	outer  http.ResponseWriter
	before http.Header // what outer middleware had set
	header http.Header // what the handler sees and changes
	sent   http.Header // header when the status was written; nil until then
	status int
	body   bytes.Buffer
}

var (
	_ http.ResponseWriter = (*recorder)(nil)
	_ http.Hijacker       = (*recorder)(nil)
)

func newRecorder(outer http.ResponseWriter) *recorder {
	return &recorder{outer: outer, before: outer.Header().Clone(), header: outer.Header().Clone()}
}

func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader counts once, as in net/http. An informational status is left out: it
// would reach the client before COMMIT.
func (rec *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idemhttp: invalid WriteHeader code %d", status)) // as in net/http
	}
	if rec.sent != nil || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	rec.status = status
	rec.sent = rec.header.Clone()
}

func (rec *recorder) Write(p []byte) (int, error) {
	if !rec.begin() {
		return 0, http.ErrBodyNotAllowed
	}
	return rec.body.Write(p)
}

// WriteString is Write, for io.WriteString.
func (rec *recorder) WriteString(s string) (int, error) {
	if !rec.begin() {
		return 0, http.ErrBodyNotAllowed
	}
	return rec.body.WriteString(s)
}

// begin writes status 200 if none was, and says whether it may have a body.
func (rec *recorder) begin() bool {
	rec.WriteHeader(http.StatusOK)
	return bodyAllowed(rec.status)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Hijack is refused: a connection that is taken over can't wait for COMMIT. It is
// here for frameworks that call it without asking.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// SetReadDeadline and SetWriteDeadline change the connection and send nothing.
func (rec *recorder) SetReadDeadline(deadline time.Time) error {
	return http.NewResponseController(rec.outer).SetReadDeadline(deadline)
}

// SetWriteDeadline is for http.ResponseController.
func (rec *recorder) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(rec.outer).SetWriteDeadline(deadline)
}

// send lets the reply out.
func (rec *recorder) send() {
	rec.WriteHeader(http.StatusOK) // of a handler that wrote nothing
	h := rec.outer.Header()
	clear(h)
	maps.Copy(h, rec.sent)
	h.Del(replayedHeader)
	h.Del("Content-Length") // the handler's own may be wrong, and there may be trailers
	if trailers := rec.announceTrailers(h); bodyAllowed(rec.status) && !trailers {
		h.Set("Content-Length", strconv.Itoa(rec.body.Len()))
	}
	rec.outer.WriteHeader(rec.status)
	if bodyAllowed(rec.status) {
		_, _ = rec.outer.Write(rec.body.Bytes()) // a client that is gone asks again
	}
	maps.Copy(h, rec.header) // what net/http takes of it now are trailers
}

// announceTrailers says whether there are any. Those that no Trailer declares must be
// there before the body, or net/http takes the body's length for the end.
func (rec *recorder) announceTrailers(h http.Header) bool {
	found := len(h["Trailer"]) > 0
	for name, values := range rec.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			h[name] = values
			found = true
		}
	}
	return found
}
