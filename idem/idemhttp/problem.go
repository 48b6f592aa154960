package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5/pgconn"
)

const problemBase = "https://pkg.go.dev/github.com/gatepost/gatepost/idem/idemhttp#"

// The types of the problems that clients are told (RFC 9457). They don't change, and
// each leads to its description here.
const (
	// TypeKeyMissing, 400: the route requires an Idempotency-Key. Send one: any text
	// that is this request's alone, such as a UUID, and the same at each retry.
	TypeKeyMissing = problemBase + "TypeKeyMissing"
	// TypeKeyMalformed, 400: Idempotency-Key must be one header line with a string in
	// double quotes, of 1 to 255 characters of visible ASCII.
	TypeKeyMalformed = problemBase + "TypeKeyMalformed"
	// TypeKeyReused, 422: the key came before with another request. Use a new key for
	// a new request, and the same request for a retry.
	TypeKeyReused = problemBase + "TypeKeyReused"
	// TypeInProgress, 409: the first request under this key is running. Send it again
	// after as many seconds as Retry-After says.
	TypeInProgress = problemBase + "TypeInProgress"
	// TypeReplyNotKept, 409: the request was carried out, and its reply was too large
	// to be kept. original_status, original_size and done_at tell of it. Another try
	// will not be carried out, and gets no other answer.
	TypeReplyNotKept = problemBase + "TypeReplyNotKept"
	// TypeBodyTooLarge, 413: nothing was done; the request's body is over the limit.
	TypeBodyTooLarge = problemBase + "TypeBodyTooLarge"
	// TypeBodyUnreadable, 400: nothing was done; the request's body didn't arrive whole.
	TypeBodyUnreadable = problemBase + "TypeBodyUnreadable"
	// TypeUnavailable, 503: whether the request was carried out is not known. Send it
	// again, with the same key, after as many seconds as Retry-After says.
	TypeUnavailable = problemBase + "TypeUnavailable"
	// TypePreconditionRequired, 428: the change needs If-Match with the ETag of what
	// it changes.
	TypePreconditionRequired = problemBase + "TypePreconditionRequired"
	// TypePreconditionMalformed, 400: If-Match must be * or a list of entity tags.
	TypePreconditionMalformed = problemBase + "TypePreconditionMalformed"
	// TypePreconditionFailed, 412: nothing was changed; it has another version than
	// If-Match allows. Read it again. ETag has the version, where it is known.
	TypePreconditionFailed = problemBase + "TypePreconditionFailed"
	// TypeNotFound, 404: what should be changed is not there.
	TypeNotFound = problemBase + "TypeNotFound"
	// TypeInternal, 500: a fault of the service. Whether the request was carried out is
	// not known; another try with the same key does no harm.
	TypeInternal = problemBase + "TypeInternal"
)

// problem is one answer about an error.
type problem struct {
	kind   string
	status int
	title  string
	detail string
	header http.Header
	more   map[string]any
}

// problems are the answers to the errors that clients are told of. The first that
// matches counts.
var problems = []struct {
	err error
	problem
}{
	{errKeyMissing, problem{
		kind: TypeKeyMissing, status: http.StatusBadRequest, title: "Idempotency-Key is missing",
		detail: "This operation requires the header Idempotency-Key.",
	}},
	{errKeyMalformed, problem{
		kind: TypeKeyMalformed, status: http.StatusBadRequest, title: "Idempotency-Key is malformed",
		detail: "Idempotency-Key must be one header line with a string in double quotes, of 1 to 255 characters of visible ASCII.",
	}},
	{errBodyTooLarge, problem{
		kind: TypeBodyTooLarge, status: http.StatusRequestEntityTooLarge, title: "The body is too large",
		detail: "The body of the request is over the limit. Nothing was done.",
	}},
	{errBodyUnreadable, problem{
		kind: TypeBodyUnreadable, status: http.StatusBadRequest, title: "The body is incomplete",
		detail: "The body of the request didn't arrive whole. Nothing was done.",
	}},
	{ErrPreconditionRequired, problem{
		kind: TypePreconditionRequired, status: http.StatusPreconditionRequired, title: "If-Match is missing",
		detail: "This change requires the header If-Match with the ETag of what it changes.",
	}},
	{ErrInvalidPrecondition, problem{
		kind: TypePreconditionMalformed, status: http.StatusBadRequest, title: "If-Match is malformed",
		detail: "If-Match must be * or a list of entity tags.",
	}},
	{idem.ErrMismatch, problem{
		kind: TypeKeyReused, status: http.StatusUnprocessableEntity, title: "Idempotency-Key is already used",
		detail: "The key was used before for another request. A new request needs a new key; a retry must not differ from the first try.",
	}},
	{idem.ErrInProgress, inProgress},
	{idem.ErrFenced, inProgress}, // by another attempt, which will answer
	{idem.ErrReplayUnavailable, problem{
		kind: TypeReplyNotKept, status: http.StatusConflict, title: "The reply was not kept",
		detail: "The request was carried out, and its reply was too large to be kept. It will not be carried out again.",
		header: http.Header{replayedHeader: {"true"}},
	}},
	{idem.ErrRetryTx, unavailable},
	{errSingleRun, unavailable},
	{idem.ErrUnavailable, unavailable},
	{idem.ErrLapsed, unavailable},
	{idem.ErrEnded, unavailable},
	{idem.ErrClosed, unavailable},
	{context.Canceled, unavailable},
	{context.DeadlineExceeded, unavailable},
	{idem.ErrStale, problem{
		kind: TypePreconditionFailed, status: http.StatusPreconditionFailed, title: "It was changed since it was read",
		detail: "It has another version than If-Match allows. Nothing was changed.",
	}},
	{idem.ErrNotFound, problem{
		kind: TypeNotFound, status: http.StatusNotFound, title: "Not found",
		detail: "What should be changed is not there.",
	}},
}

var (
	inProgress = problem{
		kind: TypeInProgress, status: http.StatusConflict, title: "A request is outstanding for this Idempotency-Key",
		detail: "The first request with this key is still being processed. Try again later.",
		header: http.Header{"Retry-After": {strconv.Itoa(leastRetry)}},
	}
	unavailable = problem{
		kind: TypeUnavailable, status: http.StatusServiceUnavailable, title: "Temporarily unavailable",
		detail: "Whether the request was carried out is not known. Try again with the same key.",
		header: http.Header{"Retry-After": {strconv.Itoa(leastRetry)}},
	}
)

// Seconds that Retry-After tells.
const (
	leastRetry = 1
	mostRetry  = 30
	downRetry  = 5 // where not even a connection can be made
)

// WriteError answers with what an error of package idem, of ParseIfMatch or of the
// middleware means for the client, as application/problem+json: 400, 404, 409, 412,
// 413, 422, 428, 503, and 500 for any other error. The error's own text stays here. It
// is for errors of Begin and for those of Finish, which come after an effect: no answer
// of 409, 500 or 503 says that nothing was done, and all of them let the client send
// the request again. An attempt that was fenced off is answered as one in progress,
// since another has the key; one that lapsed is 503.
//
// Within a Middleware, an error that passes (ErrRetryTx, ErrInProgress, ErrFenced,
// ErrUnavailable) is also told to it: it rolls back, and on ErrRetryTx runs the
// handler again instead of sending the answer.
func WriteError(w http.ResponseWriter, err error) {
	if passes(err) {
		if n := notesOf(w); n != nil {
			n.passing = err
		}
	}
	problemOf(err).write(w)
}

// passes says that another try may succeed.
func passes(err error) bool {
	return errors.Is(err, idem.ErrRetryTx) || errors.Is(err, idem.ErrInProgress) ||
		errors.Is(err, idem.ErrFenced) || errors.Is(err, idem.ErrUnavailable)
}

func problemOf(err error) problem {
	for _, p := range problems {
		if errors.Is(err, p.err) {
			return p.about(err)
		}
	}
	return problem{
		kind: TypeInternal, status: http.StatusInternalServerError, title: "Internal error",
		detail: "The service is at fault. Whether the request was carried out is not known.",
	}
}

// about adds what the error's own data says.
func (p problem) about(err error) problem {
	if progress, ok := errors.AsType[*idem.InProgressError](err); ok && p.kind == TypeInProgress {
		left := int64((progress.RetryAfter + time.Second - 1) / time.Second) // rounded up
		p.header = http.Header{"Retry-After": {strconv.FormatInt(min(max(left, leastRetry), mostRetry), 10)}}
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok && p.kind == TypeUnavailable {
		p.header = http.Header{"Retry-After": {strconv.Itoa(downRetry)}}
	}
	if stale, ok := errors.AsType[*idem.StaleError](err); ok && p.kind == TypePreconditionFailed {
		p.header = http.Header{"Etag": {ETag(stale.Current)}}
	}
	if gone, ok := errors.AsType[*idem.ReplayUnavailableError](err); ok && p.kind == TypeReplyNotKept {
		p.more = map[string]any{
			"original_status": gone.Status, "original_size": gone.Size, "done_at": gone.DoneAt.UTC().Format(time.RFC3339),
		}
	}
	return p
}

func (p problem) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, p.header.Clone())
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Language", "en")
	h.Set("Cache-Control", "no-store")
	body := map[string]any{"type": p.kind, "title": p.title, "status": p.status, "detail": p.detail}
	maps.Copy(body, p.more)
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and numbers
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(text) // a client that is gone can't be told
}
