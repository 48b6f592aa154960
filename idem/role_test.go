package idem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What gatepost migrate grants prints is enough for all of idem, without anything that
// everybody has by default.
func TestRole_AnApplicationNeedsNoMoreThanItsGrants(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Role(t, url, migrations.Grants)
	exec(t, pool, "CREATE TABLE notes (id bigint PRIMARY KEY, body text, version bigint NOT NULL DEFAULT 1)")
	s, err := idem.New(pool, idem.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Run("transaction mode", func(t *testing.T) { transactionMode(t, pool, s) })
	t.Run("lease mode", func(t *testing.T) { leaseMode(t, pgtest.Connect(t, url), s) })
	t.Run("helpers", func(t *testing.T) { helpers(t, pool, s) })
	t.Run("retention", func(t *testing.T) { retention(t, pgtest.Connect(t, url), s) })
	for _, sql := range []string{
		"UPDATE gatepost.idempotency_keys SET key = 'x'", "UPDATE gatepost.idempotency_steps SET output = 'x'", "TRUNCATE gatepost.idempotency_keys CASCADE",
		"ALTER TABLE gatepost.idempotency_keys DISABLE TRIGGER USER",
	} {
		if _, err := pool.Exec(t.Context(), sql); stateOf(err) != "42501" {
			t.Errorf("%s: %v, want 42501", sql, err)
		}
	}
}

func stateOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

func ownKey(key string) idem.Key { return idem.Key{Operation: "o", Scope: "s", Key: key} }

func transactionMode(t *testing.T, pool *pgxpool.Pool, s *idem.Store) {
	ctx, fp := t.Context(), idem.FingerprintOf([]byte("r"))
	reply := func(context.Context, pgx.Tx) (idem.Reply, error) {
		return idem.Reply{Status: 201, Body: []byte("x")}, nil
	}
	for _, replayed := range []bool{false, true} {
		got, err := s.Do(ctx, ownKey("do"), fp, &idem.Options{Wait: time.Second}, reply)
		if err != nil || got.Replayed != replayed {
			t.Errorf("Do: %+v, %v", got, err)
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := s.DoTx(ctx, tx, ownKey("dotx"), fp, nil, reply)
			return err
		})
		if err != nil {
			t.Errorf("DoTx: %v", err)
		}
	}
	final, err := s.Do(ctx, ownKey("final"), fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
		return idem.Reply{}, idem.Final(idem.Reply{Status: 409})
	})
	if err != nil || final.Status != 409 {
		t.Errorf("Final: %+v, %v", final, err)
	}
}

// leaseMode has an attempt that finishes, one that is given back and taken again, and one
// that is taken over.
func leaseMode(t *testing.T, owner *pgxpool.Pool, s *idem.Store) {
	ctx, fp := t.Context(), idem.FingerprintOf([]byte("r"))
	step := func(a *idem.Attempt) error {
		_, err := a.Step(ctx, "one", func(pgx.Tx) ([]byte, error) { return []byte("x"), nil })
		return err
	}
	begin := func() *idem.Attempt {
		t.Helper()
		a, err := s.Begin(ctx, ownKey("lease"), fp)
		if err != nil {
			t.Fatalf("Begin: %v", err)
		}
		return a
	}
	a := begin()
	if err := errors.Join(step(a), a.Release(ctx)); err != nil {
		t.Errorf("Step, Release: %v", err)
	}
	begin()
	exec(t, owner, "UPDATE gatepost.idempotency_keys SET lease_until = clock_timestamp() - interval '1 s' WHERE key = 'lease'")
	a, err := s.BeginRecover(ctx, ownKey("lease"), fp, func(context.Context) (idem.Recovery, error) { return idem.Absent, nil })
	if err != nil {
		t.Fatalf("BeginRecover: %v", err)
	}
	if err := errors.Join(step(a), a.Finish(ctx, idem.Reply{Status: 201}, func(pgx.Tx) error { return nil })); err != nil {
		t.Errorf("Step, Finish: %v", err)
	}
	if reply, done := begin().Replay(); !done || reply.Status != 201 {
		t.Errorf("Replay: %+v, %t", reply, done)
	}
}

func helpers(t *testing.T, pool *pgxpool.Pool, s *idem.Store) {
	ctx, notes := t.Context(), pgx.Identifier{"app", "notes"}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return errors.Join(
			s.Inbox(ctx, tx, "c", "m", idem.Fingerprint{}, func(pgx.Tx) error { return nil }),
			idem.Inbox(ctx, tx, "c", "m", idem.Fingerprint{}, func(pgx.Tx) error { return nil }))
	})
	if err != nil {
		t.Errorf("Inbox: %v", err)
	}
	for range 2 {
		counts, err := load(ctx, pool, idem.Target{Table: notes, Columns: []string{"id", "body"}, Key: []string{"id"}}, lines(1, 10, "x"))
		if err != nil || counts.Rows != 10 {
			t.Errorf("CopyOnce: %+v, %v", counts, err)
		}
	}
	for _, want := range []idem.Outcome{idem.Inserted, idem.Existed} {
		_, outcome, err := idem.InsertOnce(ctx, pool, idem.Insert{
			Table: notes, Columns: []string{"id", "body"}, Values: []any{int64(77), "x"}, Key: []string{"id"},
		}, pgx.RowToMap)
		if err != nil || outcome != want {
			t.Errorf("InsertOnce: %v, %v", outcome, err)
		}
	}
	_, err = idem.CompareAndSet(ctx, pool, idem.Update{
		Table: notes, Key: map[string]any{"id": int64(77)}, Set: map[string]any{"body": "y"}, VersionColumn: "version",
	}, 1)
	if err != nil {
		t.Errorf("CompareAndSet: %v", err)
	}
}

func retention(t *testing.T, owner *pgxpool.Pool, s *idem.Store) {
	ctx := t.Context()
	exec(t, owner, "UPDATE gatepost.idempotency_keys SET expires_at = clock_timestamp() - interval '1 s' WHERE key IN ('lease', 'do')")
	if _, err := s.Backlog(ctx); err != nil {
		t.Errorf("Backlog: %v", err)
	}
	if removed, err := s.GC(ctx); err != nil || removed != 2 {
		t.Errorf("GC: %d, %v", removed, err)
	}
	if err := s.Forget(ctx, ownKey("dotx")); err != nil {
		t.Errorf("Forget: %v", err)
	}
}
