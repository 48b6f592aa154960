package idem

import (
	"net/http"
	"time"
)

// Reply is what an operation answered: the caller decides what the parts mean. It
// is stored and given back byte for byte.
type Reply struct {
	// Status is an HTTP status, or any number of the caller's.
	Status int
	// Header is stored whole; idemhttp chooses what to put into it.
	Header http.Header
	Body   []byte
}

// Result is a reply, and whether it is an earlier call's.
type Result struct {
	Reply
	// Replayed says that nothing ran: the reply was stored by an earlier call.
	Replayed bool
}

// Options are the options of one call. Nil means FailFast.
type Options struct {
	// Wait is the longest to wait for another call under the same key that is
	// running now. Zero is FailFast: ErrInProgress at once.
	Wait time.Duration
}
