package idem_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	hello = idem.FingerprintOf([]byte("hello"))
	other = idem.FingerprintOf([]byte("other"))
)

// effects is a table in which each run of a message leaves a row, and the run.
func effects(t *testing.T, pool *pgxpool.Pool) (name pgx.Identifier, run func(id string) func(pgx.Tx) error) {
	t.Helper()
	name = table(t, pool, "seq bigint GENERATED ALWAYS AS IDENTITY, message text")
	return name, func(id string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+name.Sanitize()+" (message) VALUES ($1)", id)
			return err
		}
	}
}

func wantEffects(t *testing.T, pool *pgxpool.Pool, name pgx.Identifier, want string) {
	t.Helper()
	got := value[string](t, pool, "SELECT coalesce(string_agg(message, ' ' ORDER BY seq), '') FROM "+name.Sanitize())
	if got != want {
		t.Errorf("effects are %q, want %q", got, want)
	}
}

// consume commits one message.
func consume(ctx context.Context, pool *pgxpool.Pool, consumer, id string, payload idem.Fingerprint, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, orReadCommitted(pgx.TxOptions{}), func(tx pgx.Tx) error {
		return idem.Inbox(ctx, tx, consumer, id, payload, fn)
	})
}

func TestInbox_RunsAMessageOnceAConsumer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumers := []string{pgtest.Name(t), pgtest.Name(t)}
	for range 3 {
		for _, consumer := range consumers {
			if err := consume(t.Context(), pool, consumer, "m1", hello, run("m1")); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantEffects(t, pool, name, "m1 m1")

	err := consume(t.Context(), pool, consumers[0], "m1", other, run("m1"))
	wantErr(t, err, idem.ErrMismatch)
	if strings.Contains(err.Error(), "m1") {
		t.Errorf("the error %q has the message's ID", err)
	}
	wantEffects(t, pool, name, "m1 m1")
}

func TestInbox_AFailureLeavesNeitherMarkNorEffect(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	boom := errors.New("boom")
	failures := map[string]func(pgx.Tx) error{
		"an error":               func(tx pgx.Tx) error { return errors.Join(run("bad")(tx), boom) },
		"a refused statement":    func(tx pgx.Tx) error { _ = run("bad")(tx); _, err := tx.Exec(t.Context(), "SELECT 1/0"); return err },
		"one that is kept quiet": func(tx pgx.Tx) error { _ = run("bad")(tx); _, _ = tx.Exec(t.Context(), "SELECT 1/0"); return nil },
		"its own COMMIT":         func(tx pgx.Tx) error { _ = run("bad")(tx); return tx.Commit(t.Context()) },
		"Final":                  func(tx pgx.Tx) error { _ = run("bad")(tx); return idem.Final(idem.Reply{}) },
	}
	tx := begin(t, pool, pgx.TxOptions{})
	if err := run("before")(tx); err != nil {
		t.Fatal(err)
	}
	for what, fn := range failures {
		if err := idem.Inbox(t.Context(), tx, consumer, "m1", hello, fn); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	func() {
		defer func() {
			if got, _ := recover().(error); !errors.Is(got, boom) {
				t.Errorf("recovered %v, want the handler's own panic", got)
			}
		}()
		_ = idem.Inbox(t.Context(), tx, consumer, "m1", hello, func(tx pgx.Tx) error { _ = run("bad")(tx); panic(boom) })
	}()
	// The transaction goes on, and the message is a new one.
	if err := idem.Inbox(t.Context(), tx, consumer, "m1", hello, run("good")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, pool, name, "before good")
}

func TestInbox_MarkAndEffectShareTheFateOfTheTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	tx := begin(t, pool, pgx.TxOptions{})
	for range 2 { // the second one sees the mark of its own transaction
		if err := idem.Inbox(t.Context(), tx, consumer, "m1", hello, run("m1")); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, tx, name); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := consume(t.Context(), pool, consumer, "m1", hello, run("again")); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, pool, name, "again")
}

func count(t *testing.T, db idem.DBTX, name pgx.Identifier) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+name.Sanitize()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInbox_ConcurrentDeliveriesHaveOneEffect(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	for _, id := range []string{"m1", "m2", "m3", "m4"} {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if err := consume(t.Context(), pool, consumer, id, hello, run(id)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	wantEffects(t, pool, name, "m1 m2 m3 m4")
}

func TestInbox_WaitsForWhoHasTheMessage(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	for id, commit := range map[string]bool{"committed": true, "rolled back": false} {
		consumer := pgtest.Name(t)
		first := begin(t, pool, pgx.TxOptions{})
		if err := idem.Inbox(t.Context(), first, consumer, id, hello, run("first")); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() { second <- consume(t.Context(), pool, consumer, id, hello, run("second")) }()
		waitForWaiterOf(t, pool, first)
		end := first.Rollback
		if commit {
			end = first.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if n := count(t, pool, name); n != 2 {
		t.Errorf("%d effects, want one of each message", n)
	}
}

// waitForWaiterOf returns when somebody waits for the transaction to end.
func waitForWaiterOf(t *testing.T, pool *pgxpool.Pool, tx pgx.Tx) {
	t.Helper()
	waitUntil(t, "somebody to wait", func() bool {
		return value[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks AS l WHERE NOT l.granted AND $1::int = ANY (pg_blocking_pids(l.pid)))",
			pgtest.Backend(t, tx))
	})
}

func TestInbox_IsInProgressAfterAWait(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	first, second := begin(t, pool, pgx.TxOptions{}), begin(t, pool, pgx.TxOptions{})
	if err := idem.Inbox(t.Context(), first, consumer, "m1", hello, run("first")); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Exec(t.Context(), "SET LOCAL lock_timeout = '77s'"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, idem.Inbox(t.Context(), second, consumer, "m1", hello, run("second")), idem.ErrInProgress)
	if err := idem.Inbox(t.Context(), second, consumer, "m2", hello, run("m2")); err != nil {
		t.Errorf("the transaction can't go on: %v", err)
	}
	var timeout string
	if err := second.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&timeout); err != nil || timeout != "77s" {
		t.Errorf("lock_timeout is %s, %v; want the caller's 77s", timeout, err)
	}
	if err := errors.Join(first.Commit(t.Context()), second.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, pool, name, "first m2")
}

func TestInbox_AsksForARetryWhereTheSnapshotIsOld(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		consumer := pgtest.Name(t)
		name, run := effects(t, pool)
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		if n := count(t, tx, name); n != 0 {
			t.Fatalf("%d effects before", n)
		}
		if err := consume(t.Context(), pool, consumer, "m1", hello, run("m1")); err != nil {
			t.Fatal(err)
		}
		wantErr(t, idem.Inbox(t.Context(), tx, consumer, "m1", hello, run("m1")), idem.ErrRetryTx)
		wantEffects(t, pool, name, "m1")
	}
}
