package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// timeline prints what happens when, and counts it.
type timeline struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
	quiet bool // the clients' single requests are counted only
	now   tally
}

// tally is what was counted in a scene.
type tally struct {
	requests  int // that clients sent, retries included
	conflicts int // 409: in progress
	replays   int
	refused   int // 422: another request's key
	takeovers int
	orders    int // in the database
	charges   int // at the provider
}

func newTimeline(w io.Writer) *timeline { return &timeline{w: w, start: time.Now()} }

// printf prints beside the time line.
func (t *timeline) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.w, format, args...)
}

// begin starts a scene with a count of its own.
func (t *timeline) begin(title, intro string, quiet bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.quiet = tally{}, quiet
	fmt.Fprintf(t.w, "\n%s\n%s\n", title, intro)
}

// counted is what was counted since begin.
func (t *timeline) counted() tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// note prints what the demo does itself.
func (t *timeline) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line("demo", text)
}

// told takes what a process logged.
func (t *timeline) told(who string, e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.count(e)
	if e.Msg != eventListening && e.Msg != eventDone && (who != "client" || !t.quiet) {
		t.line(who, e.text())
	}
}

func (t *timeline) line(who, text string) {
	at := fmt.Sprintf("%+.2f s", time.Since(t.start).Seconds())
	fmt.Fprintf(t.w, "%9s  %-8s  %s\n", at, who, text)
}

func (t *tally) count(e event) {
	switch {
	case e.Msg == eventNoAnswer:
		t.requests++
	case e.Msg == eventAnswered:
		t.requests++
		switch {
		case e.Status == http.StatusConflict:
			t.conflicts++
		case e.Status == http.StatusUnprocessableEntity:
			t.refused++
		case e.Replayed:
			t.replays++
		}
	case e.Msg == eventFound, e.Msg == eventAbsent, e.Msg == eventUnknown:
		t.takeovers++
	}
}

func (t *tally) add(o tally) {
	t.requests += o.requests
	t.conflicts += o.conflicts
	t.replays += o.replays
	t.refused += o.refused
	t.takeovers += o.takeovers
	t.orders += o.orders
	t.charges += o.charges
}

// text is the event for people.
func (e event) text() string {
	switch e.Msg {
	case eventNoAnswer:
		return "POST " + e.Path + ": no answer"
	case eventAnswered:
		text := fmt.Sprintf("POST %s: %d %s", e.Path, e.Status, http.StatusText(e.Status))
		if e.Replayed {
			text += ", replayed"
		}
		if e.RetryAfter > 0 {
			text += fmt.Sprintf(", Retry-After: %d", e.RetryAfter)
		}
		return text
	}
	text := e.Msg
	if e.Order > 0 {
		text += fmt.Sprintf(", order %d", e.Order)
	}
	if e.Charge != "" {
		text += ", " + e.Charge
	}
	return text
}

// cancellingWriter ends the demo when nobody reads it any more.
type cancellingWriter struct {
	w      io.Writer
	cancel context.CancelCauseFunc
}

func (w *cancellingWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.cancel(err)
	}
	return n, err
}
