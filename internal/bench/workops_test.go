package bench_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/pglock"
	"github.com/gatepost/gatepost/pglock/sqlfence"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// workTables are what the operations write to.
const workTables = `CREATE TABLE notes (note text);
	CREATE TABLE guarded (note text);
	CREATE TABLE by_column (lease text, note text);
	CREATE TABLE loaded (id bigint PRIMARY KEY, note text);
	CREATE TABLE once (id text PRIMARY KEY, note text);
	CREATE TABLE versioned (id bigint PRIMARY KEY, version bigint NOT NULL) WITH (fillfactor = 50);
	CREATE TABLE by_nothing (lease text, note text);
	INSERT INTO versioned VALUES (1, 1), (2, 1);
	SELECT gatepost.guard_table('guarded', 'guarded'), gatepost.guard_table('by_column', lease_column => 'lease')`

type prepare = func(*pgxpool.Pool, *pglock.Client) (bench.Errand, error)

// plain is statements one after another, each a transaction of its own.
func plain(statements ...string) prepare {
	return func(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
		return bench.Errand{Do: func(ctx context.Context) error {
			for _, sql := range statements {
				if _, err := pool.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		}}, nil
	}
}

// inPlainTx is a transaction without a fence or a key.
func inPlainTx(fn func(context.Context, pgx.Tx) error) prepare {
	return func(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
		return bench.Errand{Do: func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return fn(ctx, tx) })
		}}, nil
	}
}

// writes is one statement of a transaction.
func writes(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

const (
	raise        = "UPDATE versioned SET version = version + 1 WHERE id = 2"
	rowsByColumn = " SELECT 'by-column', 'a note' FROM generate_series(1, 100)"
)

var note = writes("INSERT INTO notes VALUES ('a note')")

func cycleOf(_ *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
	return bench.Errand{Do: func(ctx context.Context) error {
		lease, err := client.Acquire(ctx, "cycle", nil)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}}, nil
}

// failedTry tries to acquire what another client holds.
func failedTry(t *testing.T, pool *pgxpool.Pool) prepare {
	t.Helper()
	holder, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Close(context.Background()) })
	if _, err := holder.TryAcquire(t.Context(), "held", nil); err != nil {
		t.Fatal(err)
	}
	return func(_ *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
		return bench.Errand{Do: func(ctx context.Context) error {
			if _, err := client.TryAcquire(ctx, "held", nil); !errors.Is(err, pglock.ErrHeld) {
				return fmt.Errorf("TryAcquire: %w, want ErrHeld", err)
			}
			return nil
		}}, nil
	}
}

// takeover acquires what lapsed under another holder.
func takeover(pool *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
	_, err := pool.Exec(context.Background(), `INSERT INTO gatepost.leases (name, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions)
		SELECT 'lapsed/' || i, 1, gen_random_uuid(), 'another', now() - interval '1 h', now() - interval '1 h', now() - interval '59 min', 1
		FROM generate_series(1, 500) AS i`)
	n := 0
	return bench.Errand{Do: func(ctx context.Context) error {
		n++
		_, err := client.TryAcquire(ctx, fmt.Sprintf("lapsed/%d", n), nil)
		return err
	}}, err
}

// handOff gives a lease to another client that waits for it. What looks at the waiters is
// another pool, and not counted.
func handOff(looking *pgxpool.Pool) prepare {
	return func(pool *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
		other, err := pglock.New(pool, pglock.Config{Control: pool, PollInterval: time.Minute}) // no poll comes into it
		h := &handing{looking: looking, from: client, to: other, granted: make(chan error, 1)}
		for i := 0; err == nil && i < 10; i++ { // until each connection has prepared what it sends
			if err = h.wait(context.Background()); err == nil {
				err = h.over(context.Background())
			}
		}
		return bench.Errand{Do: h.over, Before: h.wait, After: other.Close}, err
	}
}

// handing is a lease that goes from one client to the other.
type handing struct {
	looking     *pgxpool.Pool
	from, to    *pglock.Client
	held, taken *pglock.Lease
	granted     chan error
}

// wait has the other one wait for the lease.
func (h *handing) wait(ctx context.Context) (err error) {
	if h.taken != nil {
		if err := h.taken.Release(ctx); err != nil {
			return err
		}
	}
	if h.held, err = h.from.Acquire(ctx, "handed", nil); err != nil {
		return err
	}
	go func() {
		var err error
		h.taken, err = h.to.Acquire(ctx, "handed", nil)
		h.granted <- err
	}()
	return h.waiters(ctx, 1)
}

func (h *handing) over(ctx context.Context) error {
	if err := h.held.Release(ctx); err != nil {
		return err
	}
	if err := <-h.granted; err != nil {
		return err
	}
	return h.waiters(ctx, 0)
}

// waiters waits until so many are registered.
func (h *handing) waiters(ctx context.Context, want int) error {
	for {
		var got int
		err := h.looking.QueryRow(ctx, "SELECT count(*) FROM gatepost.waiters WHERE name = 'handed'").Scan(&got)
		if err != nil || got == want {
			return err
		}
	}
}

func renewal(_ *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
	lease, err := client.TryAcquire(context.Background(), "renewed", nil)
	if err != nil {
		return bench.Errand{}, err
	}
	return bench.Errand{Do: lease.Renew}, nil
}

// fenced writes in a fenced transaction of the name's lease.
func fenced(name string, fn func(context.Context, pgx.Tx) error) prepare {
	return func(_ *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
		lease, err := client.TryAcquire(context.Background(), name, nil)
		return bench.Errand{Do: func(ctx context.Context) error {
			return lease.InTx(ctx, func(tx pgx.Tx) error { return fn(ctx, tx) })
		}}, err
	}
}

// handed writes under sequencers, one or several, as they come from another process.
func handed(names ...string) prepare {
	return func(_ *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
		var seqs []pglock.Sequencer
		for _, name := range names {
			lease, err := client.TryAcquire(context.Background(), name, nil)
			if err != nil {
				return bench.Errand{}, err
			}
			seqs = append(seqs, lease.Sequencer())
		}
		return bench.Errand{Do: func(ctx context.Context) error {
			fn := func(tx pgx.Tx) error { return note(ctx, tx) }
			if len(seqs) == 1 {
				return client.InTx(ctx, seqs[0], fn)
			}
			return client.InTxAll(ctx, seqs, fn)
		}}, nil
	}
}

// fencedSQL writes in a fenced transaction of database/sql.
func fencedSQL(pool *pgxpool.Pool, client *pglock.Client) (bench.Errand, error) {
	lease, err := client.TryAcquire(context.Background(), "sql", nil)
	return inSQL(pool, func(ctx context.Context, tx *sql.Tx) error { return sqlfence.Fence(ctx, tx, lease.Sequencer()) }), err
}

// plainSQL is the same without the fence.
func plainSQL(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
	return inSQL(pool, func(context.Context, *sql.Tx) error { return nil }), nil
}

func inSQL(pool *pgxpool.Pool, fence func(context.Context, *sql.Tx) error) bench.Errand {
	db := stdlib.OpenDBFromPool(pool)
	return bench.Errand{
		Do: func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // does nothing after Commit
			if err := fence(ctx, tx); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO notes VALUES ('a note')"); err != nil {
				return err
			}
			return tx.Commit()
		},
		After: func(context.Context) error { return db.Close() },
	}
}

// heartbeat is one beat of 1,000 leases.
func heartbeat(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
	beats, every := make(beats, 1000), time.Second
	var late bool // what PostgreSQL 14 counted is known 1.2 s later, which has to be before the next beat
	err := pool.QueryRow(context.Background(), "SELECT current_setting('server_version_num')::int < 150000").Scan(&late)
	if err != nil {
		return bench.Errand{}, err
	}
	if late {
		every *= 2
	}
	client, err := pglock.New(pool, pglock.Config{Control: pool, TTL: time.Minute, RenewEvery: every, Tracer: beats})
	for i := 0; err == nil && i < 1000; i++ {
		_, err = client.TryAcquire(context.Background(), fmt.Sprintf("beaten/%d", i), nil)
	}
	return bench.Errand{Do: beats.next, Before: beats.next, After: client.Close, Windows: 3}, err
}

// beats tells of heartbeats that renewed 1,000 leases.
type beats chan struct{}

var _ pglock.RenewTracer = beats(nil)

// TraceAcquireStart does nothing.
func (beats) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return ctx
}

// TraceAcquireEnd does nothing.
func (beats) TraceAcquireEnd(context.Context, pglock.TraceAcquireEndData) {}

// TraceRenewStart does nothing.
func (beats) TraceRenewStart(ctx context.Context, _ pglock.TraceRenewStartData) context.Context {
	return ctx
}

// TraceRenewEnd tells of it.
func (b beats) TraceRenewEnd(_ context.Context, data pglock.TraceRenewEndData) {
	if data.Renewed == 1000 {
		b <- struct{}{}
	}
}

// next is the end of the next beat from now.
func (b beats) next(ctx context.Context) error {
	for len(b) > 0 {
		<-b
	}
	select {
	case <-b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
