package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
	"github.com/jackc/pgx/v5/pgconn"
)

// recorded is what WriteError answers outside of a middleware.
func recorded(err error) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	rec.Header().Set("Content-Length", "3") // of a reply that didn't come to be
	rec.Header().Set("Content-Encoding", "gzip")
	rec.Header().Set("X-Request-Id", "17")
	idemhttp.WriteError(rec, fmt.Errorf("secret: %w", err))
	return rec
}

func TestWriteError_HasAStatusForEachError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		kind   string
		header string
	}{
		{idem.ErrMismatch, 422, idemhttp.TypeKeyReused, ""},
		{idem.ErrInProgress, 409, idemhttp.TypeInProgress, "Retry-After: 1"},
		{&idem.InProgressError{}, 409, idemhttp.TypeInProgress, "Retry-After: 1"},
		{&idem.ReplayUnavailableError{}, 409, idemhttp.TypeReplyNotKept, "Idempotent-Replayed: true"},
		{idem.ErrUnavailable, 503, idemhttp.TypeUnavailable, "Retry-After: 1"},
		{fmt.Errorf("%w: %w", idem.ErrUnavailable, &pgconn.ConnectError{}), 503, idemhttp.TypeUnavailable, "Retry-After: 5"},
		{idem.ErrFenced, 409, idemhttp.TypeInProgress, "Retry-After: 1"},
		{idem.ErrLapsed, 503, idemhttp.TypeUnavailable, "Retry-After: 1"},
		{idem.ErrEnded, 503, idemhttp.TypeUnavailable, "Retry-After: 1"},
		{idem.ErrClosed, 503, idemhttp.TypeUnavailable, "Retry-After: 1"},
		{fmt.Errorf("begin: %w", context.Canceled), 503, idemhttp.TypeUnavailable, "Retry-After: 1"},
		{fmt.Errorf("begin: %w", context.DeadlineExceeded), 503, idemhttp.TypeUnavailable, "Retry-After: 1"},
		{idem.ErrInvalidKey, 500, idemhttp.TypeInternal, ""},
		{idem.ErrInvalidReply, 500, idemhttp.TypeInternal, ""},
		{idem.ErrRetryTx, 503, idemhttp.TypeUnavailable, "Retry-After: 1"},
		{&idem.StaleError{Current: 8}, 412, idemhttp.TypePreconditionFailed, `Etag: "8"`},
		{idem.ErrStale, 412, idemhttp.TypePreconditionFailed, ""},
		{idem.ErrNotFound, 404, idemhttp.TypeNotFound, ""},
		{idemhttp.ErrPreconditionRequired, 428, idemhttp.TypePreconditionRequired, ""},
		{idemhttp.ErrInvalidPrecondition, 400, idemhttp.TypePreconditionMalformed, ""},
		{idem.ErrNotMigrated, 500, idemhttp.TypeInternal, ""},
		{errors.New("any other"), 500, idemhttp.TypeInternal, ""},
	} {
		rec := recorded(c.err)
		result := rec.Result()
		reply{status: rec.Code, header: result.Header, body: rec.Body.String()}.wantProblem(t, c.status, c.kind)
		name, value, _ := strings.Cut(c.header, ": ")
		if result.Header.Get(name) != value || result.Header.Get("Content-Length") == "3" ||
			result.Header.Get("Content-Encoding") != "" || result.Header.Get("X-Request-Id") != "17" {
			t.Errorf("%v: headers are %v, want %s", c.err, result.Header, c.header)
		}
		// WriteError is called after effects too, and can't know.
		if c.status >= 500 && strings.Contains(rec.Body.String(), "Nothing was done") {
			t.Errorf("%v: the client is told %s", c.err, rec.Body)
		}
		if strings.Contains(rec.Body.String(), "secret") {
			t.Errorf("%v: the client is told %s", c.err, rec.Body)
		}
		// RFC 9457: a type is a URI that leads to what it means.
		if !strings.HasPrefix(c.kind, "https://pkg.go.dev/github.com/gatepost/gatepost/idem/idemhttp#Type") {
			t.Errorf("type is %s", c.kind)
		}
	}
}

// Clients compare with these texts: a type that is called otherwise is another one.
func TestWriteError_ItsTypesDoNotChange(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{
		"KeyMissing": idemhttp.TypeKeyMissing, "KeyMalformed": idemhttp.TypeKeyMalformed, "KeyReused": idemhttp.TypeKeyReused,
		"InProgress": idemhttp.TypeInProgress, "ReplyNotKept": idemhttp.TypeReplyNotKept, "BodyTooLarge": idemhttp.TypeBodyTooLarge,
		"BodyUnreadable": idemhttp.TypeBodyUnreadable, "Unavailable": idemhttp.TypeUnavailable,
		"PreconditionRequired": idemhttp.TypePreconditionRequired, "PreconditionMalformed": idemhttp.TypePreconditionMalformed,
		"PreconditionFailed": idemhttp.TypePreconditionFailed, "NotFound": idemhttp.TypeNotFound, "Internal": idemhttp.TypeInternal,
	} {
		if want := "https://pkg.go.dev/github.com/gatepost/gatepost/idem/idemhttp#Type" + name; kind != want {
			t.Errorf("type is %s, want %s", kind, want)
		}
	}
}
