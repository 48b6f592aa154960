package main

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script answers requests one after the other, and notes what they were and when.
type script struct {
	replies []func() (*http.Response, error)
	start   time.Time
	at      []time.Duration
	sent    []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.at = append(s.at, time.Since(s.start))
	s.sent = append(s.sent, r.Method+" "+r.URL.Path+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
	reply := s.replies[min(len(s.sent), len(s.replies))-1]
	return reply()
}

func status(code int, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		h := http.Header{}
		for _, field := range header {
			name, value, _ := strings.Cut(field, ": ")
			h.Set(name, value)
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("body"))}, nil
	}
}

func broken() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func cutOff() (*http.Response, error) {
	resp, err := status(201)()
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("bo"), errReader{}))
	return resp, err
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func newRetrier(s *script) *retrier {
	s.start = time.Now()
	return &retrier{http: &http.Client{Transport: s}, url: "http://x", account: "alice", giveUp: time.Minute, log: slog.New(slog.DiscardHandler)}
}

func TestPost_SendsTheSameRequestUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []func() (*http.Response, error){
			broken, cutOff, status(409, "Retry-After: 7"), status(503), status(500), status(429, "Retry-After: 2"),
			status(201, "Idempotent-Replayed: true"),
		}}
		got, err := newRetrier(s).post(t.Context(), "/charges", `a"b`, []byte("{}"))
		if err != nil || got.status != 201 || !got.replayed || string(got.body) != "body" {
			t.Errorf("%+v, %v", got, err)
		}
		if len(s.sent) != len(s.replies) {
			t.Fatalf("sent %q", s.sent)
		}
		for i, sent := range s.sent {
			if want := `POST /charges "a\"b" {}`; sent != want {
				t.Errorf("try %d was %q, want %q", i+1, sent, want)
			}
			if i > 0 && s.at[i]-s.at[i-1] < firstPause/2 {
				t.Errorf("try %d came %s after the one before", i+1, s.at[i]-s.at[i-1])
			}
		}
		for i, told := range map[int]time.Duration{3: 7 * time.Second, 6: 2 * time.Second} {
			if waited := s.at[i] - s.at[i-1]; waited < told || waited > told+mostPause {
				t.Errorf("waited for %s where Retry-After said %s", waited, told)
			}
		}
	})
}

func TestPost_TakesAFinalAnswer(t *testing.T) {
	t.Parallel()
	for _, final := range []int{200, 201, 400, 401, 402, 404, 409, 413, 422} {
		s := &script{replies: []func() (*http.Response, error){status(final)}}
		got, err := newRetrier(s).post(t.Context(), "/charges", "a", nil)
		if err != nil || got.status != final || len(s.sent) != 1 {
			t.Errorf("%d: %+v, %v, sent %d times", final, got, err, len(s.sent))
		}
	}
}

func TestPost_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{replies: []func() (*http.Response, error){broken}}
		r := newRetrier(s)
		if _, err := r.post(t.Context(), "/charges", "a", nil); !errors.Is(err, io.ErrUnexpectedEOF) || time.Since(s.start) != r.giveUp {
			t.Errorf("%v after %s", err, time.Since(s.start))
		}
		if len(s.sent) < 10 || len(s.sent) > 40 {
			t.Errorf("%d tries in a minute", len(s.sent))
		}
	})
}

func TestRetryAfter_ReadsSecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for field, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-3": 0, "soon": 0, "1.5": 0,
		"Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(field, now); got != want {
			t.Errorf("retryAfter(%q) = %s, want %s", field, got, want)
		}
	}
}
