package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/gatepost/gatepost/pglock/sqlfence"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// What gatepost migrate grants prints is enough for all of pglock, without anything that
// everybody has by default.
func TestRole_AnApplicationNeedsNoMoreThanItsGrants(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool, ctx := pgtest.Role(t, url, migrations.Grants), t.Context()
	a, b := client(t, pool, fast), client(t, pool, fast)
	exec(t, pool, "CREATE TABLE notes (note text)")
	l := acquire(t, a, "n", &pglock.AcquireOptions{Data: []byte(`{"a": 1}`)})
	renewedAgain(t, pgtest.Connect(t, pgtest.Owner(t, url)), "n")
	_, held := b.TryAcquire(ctx, "n", nil)
	wantErr(t, held, pglock.ErrHeld)
	write := func(tx pgx.Tx) error { return insert(ctx, tx, "notes", "x") }
	own := func(fence func(pgx.Tx) error) error {
		// A second fence sees the heartbeats until then.
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
			func(tx pgx.Tx) error { return errors.Join(fence(tx), write(tx)) })
	}
	other := acquire(t, b, "m", nil)
	both := []pglock.Sequencer{l.Sequencer(), other.Sequencer()}
	_, get := a.Get(ctx, "n")
	_, list := a.List(ctx, &pglock.ListOptions{Free: true})
	_, collect := a.GC(ctx)
	_, guards := pglock.Guards(ctx, pool)
	for what, err := range map[string]error{
		"GuardTable": pglock.GuardTable(ctx, pool, pgx.Identifier{"app", "notes"}, byLease("n")),
		"Guards":     guards, "Get": get, "List": list, "GC": collect, "Renew": l.Renew(ctx),
		"InTx":     l.InTx(ctx, write),
		"InTxAll":  b.InTxAll(ctx, both, write),
		"Fence":    own(func(tx pgx.Tx) error { return pglock.Fence(ctx, tx, l.Sequencer()) }),
		"FenceAll": own(func(tx pgx.Tx) error { return pglock.FenceAll(ctx, tx, both...) }),
		"Advance": pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return errors.Join(pglock.Advance(ctx, tx, "r", 1), pglock.Advance(ctx, tx, "r", 2), pglock.Advance(ctx, tx, "r", 2))
		}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := pool.Exec(ctx, "INSERT INTO notes VALUES ('x')"); codeOf(err) != pglock.CodeFenced {
		t.Errorf("unfenced: %v", err)
	}
	waitsAndElects(t, pool, l, b)
	if removed, err := pglock.UnguardTable(ctx, pool, pgx.Identifier{"notes"}); err != nil || !removed {
		t.Errorf("UnguardTable: %t, %v", removed, err)
	}
	for _, sql := range []string{
		"TRUNCATE gatepost.leases", "UPDATE gatepost.leases SET name = 'x'", "DELETE FROM gatepost.fences", "SELECT * FROM gatepost.schema_migrations",
		"CREATE TABLE gatepost.mine ()", "SELECT gatepost.hold_fences()",
	} {
		if _, err := pool.Exec(ctx, sql); codeOf(err) != "42501" {
			t.Errorf("%s: %v, want 42501", sql, err)
		}
	}
}

// waitsAndElects lets another client wait for a lease that is held, and two elect a
// leader who hands over.
func waitsAndElects(t *testing.T, pool *pgxpool.Pool, held *pglock.Lease, waiter *pglock.Client) {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		next, err := waiter.Acquire(context.WithoutCancel(t.Context()), held.Name(), nil)
		if err == nil {
			err = next.Release(context.WithoutCancel(t.Context()))
		}
		got <- err
	}()
	eventually(t, "a waiter", 10*time.Second, func() bool {
		return value[int](t, pool, "SELECT count(*) FROM gatepost.waiters WHERE name = $1", held.Name()) == 1
	})
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	if err := <-got; err != nil {
		t.Errorf("Acquire, waiting: %v", err)
	}
	one, two := campaign(t, pool, "leader", "one"), (*candidate)(nil)
	one.leads(t)
	two = campaign(t, pool, "leader", "two")
	if info, err := two.elector.Leader(t.Context()); err != nil || info.Holder != "one" {
		t.Errorf("Leader: %+v, %v", info, err)
	}
	one.stop()
	_ = one.ends(t)
	two.leads(t)
	two.stop()
	_ = two.ends(t)
}

// A role that was handed a sequencer fences with it, and can do nothing else to a lease.
func TestRole_FenceOnlyFencesAndNothingElse(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	owner, ctx := pgtest.Connect(t, pgtest.Owner(t, url)), t.Context()
	pool := pgtest.Role(t, url, migrations.FenceOnlyGrants)
	holder := asleep(t, owner)
	l, m := acquire(t, holder, "a/b c%", nil), acquire(t, holder, "m", nil)
	exec(t, pool, "CREATE TABLE notes (note text)")
	if err := pglock.GuardTable(ctx, owner, pgx.Identifier{"app", "notes"}, byLease(l.Name())); err != nil {
		t.Fatal(err)
	}
	worker := client(t, pool, pglock.Config{FenceTimeout: 7 * time.Second})
	write := func(tx pgx.Tx) error { return insert(ctx, tx, "notes", "x") }
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	for range 2 { // the first learns, the second knows
		for what, err := range map[string]error{
			"InTx":    worker.InTx(ctx, l.Sequencer(), write),
			"InTxAll": worker.InTxAll(ctx, []pglock.Sequencer{m.Sequencer(), l.Sequencer()}, write),
			"Fence": pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return errors.Join(pglock.Fence(ctx, tx, l.Sequencer()), write(tx))
			}),
			"sqlfence": inSQL(ctx, db, func(tx *sql.Tx) error {
				if err := sqlfence.Fence(ctx, tx, l.Sequencer()); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, "INSERT INTO notes VALUES ('x')")
				return err
			}),
			"gatepost.fence": pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return errors.Join(run(t, tx, "SELECT gatepost.fence('"+l.Sequencer().String()+"')"), write(tx))
			}),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if n := rows(t, pool, "notes"); n != 10 {
		t.Errorf("%d rows, want 10", n)
	}
	_, acquired := worker.TryAcquire(ctx, "mine", nil)
	_, unguarded := pglock.UnguardTable(ctx, pool, pgx.Identifier{"notes"})
	_, read := worker.Get(ctx, l.Name())
	for what, err := range map[string]error{"TryAcquire": acquired, "UnguardTable": unguarded, "Get": read} {
		if codeOf(err) != "42501" {
			t.Errorf("%s: %v, want 42501", what, err)
		}
	}
	for _, sql := range []string{
		"SELECT nonce FROM gatepost.leases", "SELECT name FROM gatepost.leases", "SELECT FROM gatepost.leases FOR KEY SHARE",
		"UPDATE gatepost.leases SET expires_at = 'infinity'", "INSERT INTO gatepost.leases VALUES ('x')", "DELETE FROM gatepost.leases",
		"SELECT gatepost.present('a', 0, 1, '" + aNonce + "')", "SELECT gatepost.hold_fences()", "SELECT gatepost.refuse('', '', '')",
		"CREATE TRIGGER x BEFORE INSERT ON notes FOR EACH STATEMENT EXECUTE FUNCTION gatepost.guard_statement('lease', 'x')",
		"SELECT * FROM gatepost.waiters", "SELECT * FROM gatepost.idempotency_keys", "SELECT * FROM gatepost.fences",
	} {
		if _, err := pool.Exec(ctx, sql); codeOf(err) != "42501" {
			t.Errorf("%s: %v, want 42501", sql, err)
		}
	}
	_, err := pool.Exec(ctx, "INSERT INTO notes VALUES ('x')")
	wantGuard(t, "unfenced", err, "presents no fence")
}

func inSQL(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Through the function a fence is refused for the same reasons, and as bounded.
func TestRole_FenceOnlyIsRefusedAsOthersAre(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	owner, ctx := pgtest.Connect(t, pgtest.Owner(t, url)), t.Context()
	worker := client(t, pgtest.Role(t, url, migrations.FenceOnlyGrants), pglock.Config{FenceTimeout: 7 * time.Second})
	holder := asleep(t, owner)
	live := acquire(t, holder, "live", nil)
	limits := "SELECT concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'))"
	if err := worker.InTx(ctx, live.Sequencer(), func(tx pgx.Tx) error {
		var got string
		err := tx.QueryRow(ctx, limits).Scan(&got)
		if got != "7s 7s 7s" {
			t.Errorf("the limits are %s, want 7s each", got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		lose   func(l *pglock.Lease)
		reason error
	}{
		"expired":  {func(l *pglock.Lease) { expire(t, owner, l.Name()) }, pglock.ErrExpired},
		"released": {func(l *pglock.Lease) { _ = l.Release(ctx) }, pglock.ErrReleased},
		"superseded": {func(l *pglock.Lease) {
			expire(t, owner, l.Name())
			acquire(t, asleep(t, owner), l.Name(), nil)
		}, pglock.ErrSuperseded},
		"deleted": {func(l *pglock.Lease) { exec(t, owner, "DELETE FROM gatepost.leases WHERE name = $1", l.Name()) }, pglock.ErrSuperseded},
	} {
		l := acquire(t, holder, what, nil)
		test.lose(l)
		for _, err := range []error{
			worker.InTx(ctx, l.Sequencer(), nothing),
			worker.InTxAll(ctx, []pglock.Sequencer{live.Sequencer(), l.Sequencer()}, nothing),
		} {
			refused, ok := errors.AsType[*pglock.FencedError](err)
			if !ok || refused.Name != what || !errors.Is(err, test.reason) {
				t.Errorf("%s: %v, want a *FencedError for %v", what, err, test.reason)
				continue
			}
			if current := value[int64](t, owner, "SELECT coalesce(max(token), 0) FROM gatepost.leases WHERE name = $1", what); refused.Current != current {
				t.Errorf("%s: Current is %d, want %d", what, refused.Current, current)
			}
		}
	}
}

// A role without any right is told so, and served as soon as it has one.
func TestRole_WithoutGrantsIsToldAndLearns(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	owner := pgtest.Connect(t, pgtest.Owner(t, url))
	var role string
	pool := pgtest.Role(t, url, func(name string) (string, error) {
		role = name
		return "GRANT USAGE ON SCHEMA gatepost TO " + name, nil
	})
	l := acquire(t, asleep(t, owner), "n", nil)
	worker := client(t, pool, pglock.Config{})
	for range 2 {
		if err := worker.InTx(t.Context(), l.Sequencer(), nothing); codeOf(err) != "42501" {
			t.Errorf("InTx: %v, want 42501", err)
		}
	}
	for _, grants := range []func(string) (string, error){migrations.FenceOnlyGrants, migrations.Grants} {
		text, err := grants(role)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, owner, text)
		if err := worker.InTx(t.Context(), l.Sequencer(), nothing); err != nil {
			t.Errorf("InTx: %v", err)
		}
	}
}
