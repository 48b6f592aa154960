package idem

import (
	"context"
	"errors"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// roundTrip runs one query of sqlc's between statements that are sent with it, in
// one round trip: what opens a place for it and what follows on it.
type roundTrip struct {
	send          func(context.Context, *pgx.Batch) pgx.BatchResults
	begin         *pgx.TxOptions // nil: before says what opens
	before, after []statement    // before: of the first query only

	tx      pgx.Tx            // that it ran in; of begin, if there is one
	opened  bool              // whether the first statement succeeded
	queried bool              // whether the query did
	last    pgconn.CommandTag // of the last statement
}

type statement struct {
	sql  string
	args []any
}

var _ idemdb.DBTX = (*roundTrip)(nil)

// errBadUse can't reach a user: what is sent so returns one row.
var errBadUse = errors.New("idem: a round trip is a query of one row")

func (r *roundTrip) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errBadUse
}

func (r *roundTrip) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errBadUse
}

func (r *roundTrip) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	batch := &pgx.Batch{}
	ahead := len(r.before)
	if r.begin != nil {
		batch.BeginTx(*r.begin)
		ahead++
	}
	for _, s := range r.before {
		batch.Queue(s.sql, s.args...)
	}
	r.before = nil
	batch.Queue(sql, args...)
	for _, s := range r.after {
		batch.Queue(s.sql, s.args...)
	}
	results := r.send(ctx, batch)
	if r.begin != nil {
		r.tx = results.Tx()
	}
	return &roundTripRow{roundTrip: r, results: results, ahead: ahead}
}

type roundTripRow struct {
	*roundTrip
	results pgx.BatchResults
	ahead   int
}

// Scan reads the query's row, and the answers to everything else.
func (r *roundTripRow) Scan(dest ...any) error {
	err := r.read(dest)
	closeErr := r.results.Close()
	if closeErr != nil && (err == nil || errors.Is(err, pgx.ErrNoRows)) {
		return closeErr // no row says nothing when what follows failed
	}
	return err
}

func (r *roundTripRow) read(dest []any) error {
	if err := r.exec(r.ahead); err != nil {
		return err
	}
	if err := r.results.QueryRow().Scan(dest...); err != nil {
		return err
	}
	r.queried = true
	return r.exec(len(r.after))
}

func (r *roundTripRow) exec(n int) (err error) {
	for range n {
		if r.last, err = r.results.Exec(); err != nil {
			return err
		}
		r.opened = true
	}
	return nil
}
