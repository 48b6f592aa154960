package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// levels are the isolation levels that a fence has to hold at.
var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// asleep is a client whose heartbeats don't come in the way of a test.
func asleep(t *testing.T, pool *pgxpool.Pool) *pglock.Client {
	t.Helper()
	return client(t, pool, pglock.Config{RenewEvery: 20 * time.Second})
}

// parsed is a sequencer with another token or nonce.
func parsed(t *testing.T, text string) pglock.Sequencer {
	t.Helper()
	seq, err := pglock.ParseSequencer(text)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// Each way of losing a lease, and each way of writing with it: all refused.
func TestFence_RefusesTheStaleHolder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	sql := func(sql string) func(*testing.T, string, *pglock.Lease) {
		return func(t *testing.T, name string, _ *pglock.Lease) { exec(t, pool, sql, name) }
	}
	takeOver := func(t *testing.T, name string, _ *pglock.Lease) { acquire(t, asleep(t, pool), name, nil) }
	for what, c := range map[string]struct {
		lose   func(*testing.T, string, *pglock.Lease)
		reason error
	}{
		"lapsed": {func(t *testing.T, name string, _ *pglock.Lease) { expire(t, pool, name) }, pglock.ErrExpired},
		"taken over": {func(t *testing.T, name string, l *pglock.Lease) {
			expire(t, pool, name)
			takeOver(t, name, l)
		}, pglock.ErrSuperseded},
		"released": {sql(`UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`), pglock.ErrReleased},
		"deleted":  {sql(`DELETE FROM gatepost.leases WHERE name = $1`), pglock.ErrSuperseded},
		"deleted and made again": {func(t *testing.T, name string, l *pglock.Lease) {
			exec(t, pool, `DELETE FROM gatepost.leases WHERE name = $1`, name)
			takeOver(t, name, l)
		}, pglock.ErrSuperseded},
		"another token, same nonce": {sql(`UPDATE gatepost.leases SET token = token + 1 WHERE name = $1`), pglock.ErrSuperseded},
		"the same token again":      {sql(`UPDATE gatepost.leases SET nonce = gen_random_uuid() WHERE name = $1`), pglock.ErrSuperseded},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			table := table(t, pool)
			for way, write := range writers(table) {
				name := pgtest.Name(t)
				l := acquire(t, asleep(t, pool), name, nil)
				c.lose(t, name, l)
				err := write(t, pool, l)
				if !errors.Is(err, pglock.ErrFenced) || !errors.Is(err, c.reason) {
					t.Errorf("%s: %v, want it to be fenced off as %v", way, err, c.reason)
				}
				if fenced, ok := errors.AsType[*pglock.FencedError](err); ok && fenced.Token != l.Token() {
					t.Errorf("%s: %+v", way, fenced)
				}
			}
			if n := rows(t, pool, table); n != 0 {
				t.Errorf("%d stale writes", n)
			}
		})
	}
}

// writers are the ways to write one row under a lease.
func writers(table string) map[string]func(*testing.T, *pgxpool.Pool, *pglock.Lease) error {
	write := func(t *testing.T) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "stale") }
	}
	ways := map[string]func(*testing.T, *pgxpool.Pool, *pglock.Lease) error{
		"Lease.InTx": func(t *testing.T, _ *pgxpool.Pool, l *pglock.Lease) error {
			return l.InTx(t.Context(), write(t))
		},
		"Client.InTx": func(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease) error {
			return asleep(t, pool).InTx(t.Context(), parsed(t, l.Sequencer().String()), write(t))
		},
	}
	for _, level := range levels {
		opts := pgx.TxOptions{IsoLevel: level}
		ways["BeginTx "+string(level)] = func(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease) error {
			tx, err := l.BeginTx(t.Context(), opts)
			if err != nil {
				return err
			}
			return errors.Join(write(t)(tx), tx.Commit(t.Context()))
		}
		ways["Fence "+string(level)] = func(t *testing.T, pool *pgxpool.Pool, l *pglock.Lease) error {
			return pgx.BeginTxFunc(t.Context(), pool, opts, func(tx pgx.Tx) error {
				if err := pglock.Fence(t.Context(), tx, l.Sequencer()); err != nil {
					return err
				}
				return write(t)(tx)
			})
		}
	}
	return ways
}

func TestFence_PassesTheCurrentHolder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	table := table(t, pool)
	ways := writers(table)
	for way, write := range ways {
		if err := write(t, pool, acquire(t, asleep(t, pool), pgtest.Name(t), nil)); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
	if n := rows(t, pool, table); n != len(ways) {
		t.Errorf("%d rows, want %d", n, len(ways))
	}
}
