package idem

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readCommitted is for queries that are a transaction of their own: at another
// isolation level SKIP LOCKED and ON CONFLICT fail with 40001.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

// alone runs one query, of one row, as a transaction of its own, in one round trip.
// An error of the query itself comes back as it is.
func alone(ctx context.Context, pool *pgxpool.Pool, fn func(*idemdb.Queries) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return &notSentError{fmt.Errorf("%w: %w", ErrUnavailable, err)}
	}
	own := &ownTx{conn: conn}
	defer own.end(ctx)
	trip := &roundTrip{send: conn.SendBatch, begin: &readCommitted, after: []statement{{sql: "COMMIT"}}}
	err = fn(idemdb.New(trip))
	own.tx = trip.tx
	return err
}

// notSentError marks an error before anything was sent: the outcome is known.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error   { return e.error }
func (*notSentError) SafeToRetry() bool { return true }
