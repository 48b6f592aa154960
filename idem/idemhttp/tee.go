package idemhttp

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/http"

	"github.com/gatepost/gatepost/idem"
)

// tee is the ResponseWriter of a streaming handler: all goes out at once, and the
// beginning is kept for replays.
type tee struct {
	notes
	outer  http.ResponseWriter
	limit  int         // of what is kept; one byte more shows that there was more
	before http.Header // what outer middleware had set
	sent   http.Header // the headers when the status was written; nil until then
	status int
	body   bytes.Buffer
	broken bool // a write failed, or the connection was hijacked
}

var (
	_ http.Flusher  = (*tee)(nil)
	_ http.Hijacker = (*tee)(nil)
)

func newTee(outer http.ResponseWriter, limit int) *tee {
	return &tee{outer: outer, limit: limit, before: outer.Header().Clone()}
}

func (t *tee) Header() http.Header { return t.outer.Header() }

// WriteHeader lets an informational status through and takes the first other one.
func (t *tee) WriteHeader(status int) {
	final := status >= 200 || status == http.StatusSwitchingProtocols
	if final && t.sent == nil {
		t.outer.Header().Del(replayedHeader)
		t.status, t.sent = status, t.outer.Header().Clone()
	}
	t.outer.WriteHeader(status) // net/http reports a second one, and an impossible one
}

// begin writes status 200 if none was.
func (t *tee) begin() {
	if t.sent == nil {
		t.WriteHeader(http.StatusOK)
	}
}

func (t *tee) Write(p []byte) (int, error) {
	t.begin()
	n, err := t.outer.Write(p)
	t.body.Write(p[:min(n, t.limit+1-t.body.Len())])
	t.broken = t.broken || err != nil && !errors.Is(err, http.ErrBodyNotAllowed)
	return n, err
}

// Flush is FlushError for handlers that ask for an http.Flusher.
func (t *tee) Flush() { _ = t.FlushError() }

// FlushError is for http.ResponseController.
func (t *tee) FlushError() error {
	t.begin()
	return http.NewResponseController(t.outer).Flush()
}

// Hijack hands the connection over. What is sent on it is not seen, and not stored.
func (t *tee) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.outer).Hijack()
	t.broken = t.broken || err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (t *tee) Unwrap() http.ResponseWriter { return t.outer }

// complete says whether the handler, which has returned, has made a reply to store.
func (t *tee) complete() bool {
	if t.broken {
		return false
	}
	t.begin()
	return t.passing == nil && stored(t.status)
}

func (t *tee) reply(allowed []string) idem.Reply {
	return idem.Reply{Status: t.status, Header: kept(allowed, t.before, t.sent), Body: t.body.Bytes()}
}
