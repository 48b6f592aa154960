package incident

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The guards, one an act.
const (
	guardNaive  = "naive"
	guardFenced = "fenced"
	guardKeyed  = "keyed"
)

// guard is what an importer relies on to import each record once.
type guard interface {
	// begin takes the lease, if there is one, and says behind which record the
	// import goes on, in Last.
	begin(ctx context.Context) (event, error)
	// write imports the records first to last, in a transaction.
	write(ctx context.Context, first, last int64) (inserted, existed int64, err error)
	end(ctx context.Context) error
}

// renewer is a guard that is to be renewed by hand, before each batch.
type renewer interface {
	renew(ctx context.Context) error
}

func newGuard(kind string, im importing, pool *pgxpool.Pool) (guard, error) {
	switch kind {
	case guardNaive:
		return &naiveGuard{importing: im, pool: pool}, nil
	case guardFenced:
		client, err := pglock.New(pool, pglock.Config{Holder: "importer " + im.who, TTL: im.ttl})
		return &fencedGuard{importing: im, pool: pool, client: client}, err
	case guardKeyed:
		return &keyedGuard{importing: im, pool: pool}, nil
	default:
		return nil, cli.UsageError{Err: fmt.Errorf("--guard %q is not known", kind)}
	}
}

// fencedGuard is a lease, and a fence around each write.
type fencedGuard struct {
	importing
	pool   *pgxpool.Pool
	client *pglock.Client
	lease  *pglock.Lease
}

func (g *fencedGuard) begin(ctx context.Context) (event, error) {
	lease, err := g.client.Acquire(ctx, string(g.scratch), nil)
	if err != nil {
		return event{}, err
	}
	g.lease = lease
	// Read after the lease was granted: no fenced transaction of the holder
	// before can commit from here on.
	e, err := g.position(ctx, g.pool)
	e.Token = lease.Token()
	return e, err
}

// write goes by the sequencer and not by lease.InTx, which would refuse by
// itself once the local timer has run out: here it is the database's turn.
func (g *fencedGuard) write(ctx context.Context, first, last int64) (inserted, existed int64, err error) {
	err = g.client.InTx(ctx, g.lease.Sequencer(), func(tx pgx.Tx) error {
		inserted, err = g.insert(ctx, tx, first, last)
		return err
	})
	return inserted, 0, err
}

func (g *fencedGuard) end(ctx context.Context) error { return g.client.Close(ctx) }

// keyedGuard is a unique key, and nothing else.
type keyedGuard struct {
	importing
	pool *pgxpool.Pool
}

func (g *keyedGuard) begin(context.Context) (event, error) { return event{}, nil }

func (g *keyedGuard) write(ctx context.Context, first, last int64) (inserted, existed int64, err error) {
	var counts idem.Counts
	err = pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		counts, err = idem.CopyOnce(ctx, tx, idem.Target{
			Table:   g.scratch.table("orders"),
			Columns: []string{"file", "line", "content", "importer"},
			Key:     []string{"file", "line"},
		}, pgx.CopyFromSlice(int(last-first+1), func(i int) ([]any, error) {
			line := first + int64(i)
			return []any{fileName, line, content(line), g.who}, nil
		}))
		return err
	})
	return counts.Inserted, counts.Existed, err
}

func (g *keyedGuard) end(context.Context) error { return nil }
