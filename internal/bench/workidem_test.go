package bench_test

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// load loads 100 rows each time, from the one on that it is told.
func load(from func(n int) int) prepare {
	return loading(from, func(ctx context.Context, tx pgx.Tx, rows pgx.CopyFromSource) error {
		_, err := idem.CopyOnce(ctx, tx, idem.Target{Table: pgx.Identifier{"public", "loaded"}, Columns: []string{"id", "note"}, Key: []string{"id"}}, rows)
		return err
	})
}

// plainLoad loads new rows by COPY.
var plainLoad = loading(func(n int) int { return 1_000_000 + n*100 }, func(ctx context.Context, tx pgx.Tx, rows pgx.CopyFromSource) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"public", "loaded"}, []string{"id", "note"}, rows)
	return err
})

func loading(from func(n int) int, into func(context.Context, pgx.Tx, pgx.CopyFromSource) error) prepare {
	return func(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
		n := 0
		return bench.Errand{Do: func(ctx context.Context) error {
			n++
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return into(ctx, tx, pgx.CopyFromSlice(100, func(i int) ([]any, error) { return []any{int64(from(n) + i), "a note"}, nil }))
			})
		}}, nil
	}
}

// once inserts once a key.
func once(key func() string) prepare {
	return stored(func(ctx context.Context, store *idem.Store) error {
		_, err := store.Do(ctx, workKey(key()), idem.Fingerprint{}, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			return idem.Reply{Body: make([]byte, 200)}, note(ctx, tx)
		})
		return err
	})
}

// twice gives each key two times.
func twice() func() string {
	var key string
	return func() (k string) {
		if k, key = key, ""; k == "" {
			key = rand.Text()
			k = key
		}
		return k
	}
}

// attempt claims a key under a lease, and finishes with an effect in the database.
var attempt = stored(func(ctx context.Context, store *idem.Store) error {
	a, err := store.Begin(ctx, workKey(rand.Text()), idem.Fingerprint{})
	if err != nil {
		return err
	}
	return a.Finish(ctx, idem.Reply{Body: make([]byte, 200)}, func(tx pgx.Tx) error { return note(ctx, tx) })
})

func workKey(key string) idem.Key {
	return idem.Key{Operation: "work", Scope: idem.Global, Key: key}
}

func stored(do func(context.Context, *idem.Store) error) prepare {
	return func(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
		store, err := idem.New(pool, idem.Config{})
		return bench.Errand{Do: func(ctx context.Context) error { return do(ctx, store) }}, err
	}
}

// collection removes 1,000 keys that have expired.
func collection(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
	store, err := idem.New(pool, idem.Config{})
	return bench.Errand{Before: expiredKeys(pool), Do: func(ctx context.Context) error {
		if n, err := store.GC(ctx); err != nil || n != 1000 {
			return fmt.Errorf("GC removed %d keys, want 1,000: %w", n, err)
		}
		return nil
	}}, err
}

// plainCollection deletes them.
func plainCollection(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
	return bench.Errand{Before: expiredKeys(pool), Do: func(ctx context.Context) error {
		_, err := pool.Exec(ctx, "DELETE FROM gatepost.idempotency_keys WHERE expires_at <= now()")
		return err
	}}, nil
}

// expiredKeys makes 1,000 keys that have expired.
func expiredKeys(pool *pgxpool.Pool) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := pool.Exec(ctx, `INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version,
				attempt, attempt_no, body, body_len, created_at, done_at, expires_at)
			SELECT 'expired', 'global', 'key-' || i, 2, decode(repeat('00', 32), 'hex'), 1,
				gen_random_uuid(), 1, 'done', 4, now() - interval '2 days', now() - interval '2 days', now() - interval '1 day'
			FROM generate_series(1, 1000) AS i`)
		return err
	}
}

// insertOnce inserts a row once a key.
func insertOnce(key func() string) prepare {
	return func(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
		return bench.Errand{Do: func(ctx context.Context) error {
			_, _, err := idem.InsertOnce(ctx, pool, idem.Insert{
				Table: pgx.Identifier{"public", "once"}, Columns: []string{"id", "note"}, Values: []any{key(), "a note"}, Key: []string{"id"},
			}, pgx.RowToMap)
			return err
		}}, nil
	}
}

// compareAndSet raises a version by one.
func compareAndSet(pool *pgxpool.Pool, _ *pglock.Client) (bench.Errand, error) {
	version := int64(1)
	return bench.Errand{Do: func(ctx context.Context) (err error) {
		version, err = idem.CompareAndSet(ctx, pool, idem.Update{
			Table: pgx.Identifier{"public", "versioned"}, Key: map[string]any{"id": 1},
		}, version)
		return err
	}}, nil
}

// inbox handles a message once.
func inbox(id func() string) prepare {
	return inPlainTx(func(ctx context.Context, tx pgx.Tx) error {
		return idem.Inbox(ctx, tx, "consumer", id(), idem.Fingerprint{}, func(tx pgx.Tx) error { return note(ctx, tx) })
	})
}
