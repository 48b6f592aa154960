//go:build linux

package faults_test

import (
	"context"
	"errors"
	"slices"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// results are what an operation may come to besides ok, the telling ones first.
var results = []struct {
	name string
	err  error
}{
	{"unknown", pglock.ErrCommitUnknown},
	{"fence timeout", pglock.ErrFenceTimeout},
	{"fenced", pglock.ErrFenced},
	{"fenced", idem.ErrFenced},
	{"held", pglock.ErrHeld},
	{"lost", pglock.ErrLost},
	{"lapsed", idem.ErrLapsed},
	{"ended", idem.ErrEnded},
	{"mismatch", idem.ErrMismatch},
	{"in progress", idem.ErrInProgress},
	{"retry", idem.ErrRetryTx},
	{"unavailable", idem.ErrUnavailable},
	{"closed", pglock.ErrClosed},
	{"closed", idem.ErrClosed},
	{"rolled back", pgx.ErrTxCommitRollback},
	{"own", errOwn},
}

// errOwn is an error that a worker's own function returns, as users' do.
var errOwn = errors.New("changed my mind")

// unexpected is the result of an error that no fault explains.
const unexpected = "unexpected"

// classify names an error by what a caller could make of it.
func classify(err error) string {
	if err == nil {
		return ok
	}
	for _, r := range results {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	if refused, isSQL := errors.AsType[*pgconn.PgError](err); isSQL {
		return classifyState(refused.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "context"
	}
	return "connection" // whatever the network says
}

// classifyState names the states that faults lead to.
func classifyState(code string) string {
	switch {
	case code == "40001", code == "40P01":
		return "retry"
	case slices.Contains([]string{"57P01", "57P02", "57P03", "57P05", "08006", "08003", "53300"}, code):
		return "server" // it ends, starts, or has no room
	case slices.Contains([]string{"57014", "25P03", "25P04", "55P03"}, code):
		return "timeout"
	case code == "25006":
		return "read only" // a standby, before it was promoted
	default:
		return unexpected
	}
}
