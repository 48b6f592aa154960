package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// What a client logs of each try.
const (
	eventAnswered = "answered"
	eventNoAnswer = "no answer"
)

// How long a client waits when it isn't told: twice as long after each try.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// retrier sends requests as the IETF's draft of the Idempotency-Key header asks for it
// (draft-ietf-httpapi-idempotency-key-header-07): a request that got no answer, or one
// that says "not yet", is sent again as it was, with the same key, not before the time
// that Retry-After tells. What says that the request is wrong is final.
type retrier struct {
	http    *http.Client
	url     string
	account string
	giveUp  time.Duration // after this no further try begins
	log     *slog.Logger
}

// answer is a response whose body was read.
type answer struct {
	status     int
	replayed   bool
	retryAfter time.Duration // zero: not told
	body       []byte
}

// post returns the final answer.
func (r *retrier) post(ctx context.Context, path, key string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.giveUp)
	defer cancel()
	for try := 0; ; try++ {
		got, err := r.once(ctx, path, key, body)
		r.tell(ctx, path, got, err)
		if err == nil && !got.notYet() {
			return got, nil
		}
		select {
		case <-time.After(pause(try, got.retryAfter)):
		case <-ctx.Done():
			return got, errors.Join(fmt.Errorf("gave up: %w", ctx.Err()), err)
		}
	}
}

// notYet says that the same request may get another answer.
func (a answer) notYet() bool {
	switch a.status {
	case http.StatusConflict:
		return a.retryAfter > 0 // without it, it won't get better
	case http.StatusTooManyRequests, http.StatusTooEarly:
		return true
	default:
		return a.status >= http.StatusInternalServerError
	}
}

// pause is at least what the server told, and a little more for each client to differ:
// those that were refused together must not come back together.
func pause(try int, told time.Duration) time.Duration {
	own := min(mostPause, firstPause<<min(try, 10))
	return max(told, own/2) + rand.N(own/2)
}

func (r *retrier) once(ctx context.Context, path, key string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.GetBody = nil // net/http would try again by itself; here each try is told
	req.Header.Set("Authorization", "Bearer "+r.account)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", strconv.Quote(key)) // a string of RFC 9651, of visible ASCII
	resp, err := r.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return answer{}, err // half of an answer is none
	}
	return answer{
		status:     resp.StatusCode,
		replayed:   resp.Header.Get("Idempotent-Replayed") == "true",
		retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
		body:       text,
	}, nil
}

// retryAfter reads both forms of the header: seconds, or a date.
func retryAfter(field string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(field); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(field); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

func (r *retrier) tell(ctx context.Context, path string, got answer, err error) {
	if err != nil {
		r.log.InfoContext(ctx, eventNoAnswer, "path", path, "err", err)
		return
	}
	r.log.InfoContext(ctx, eventAnswered, "path", path, "status", got.status,
		"replayed", got.replayed, "retry_after", int64(got.retryAfter/time.Second))
}
