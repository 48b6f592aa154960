package bench

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// reply is what is stored with each key.
var reply = idem.Reply{Status: 201, Body: []byte(strings.Repeat("stored reply, ", 15)[:200])}

// measureDo compares a transaction that happens once a key with the same one that
// happens whenever it is called.
func measureDo(ctx context.Context, e *env, r *Result) error {
	insert, err := e.notes(ctx, e.row)
	if err != nil {
		return err
	}
	return e.duel(ctx, r, duel{
		ours: func(_ context.Context, pool *pgxpool.Pool, _ *pglock.Client) (op, error) {
			store, err := idem.New(pool, idem.Config{})
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return e.do(ctx, store, rand.Text(), insert) }, nil
		},
		plain: func(_ context.Context, pool *pgxpool.Pool, _ *pglock.Client) (op, error) {
			return inTx(insert, pool.Begin), nil
		},
	})
}

// do inserts a note once a key.
func (e *env) do(ctx context.Context, store *idem.Store, key, insert string) error {
	_, err := store.Do(ctx, e.key(key), idem.FingerprintOf([]byte(note)), nil,
		func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			_, err := tx.Exec(ctx, insert, note)
			return reply, err
		})
	return err
}

func (e *env) key(key string) idem.Key {
	return idem.Key{Operation: e.operation(), Scope: idem.Global, Key: key}
}

// measureReplay compares a call whose reply is stored with the least that a round trip
// to the database can be.
func measureReplay(ctx context.Context, e *env, r *Result) error {
	insert, err := e.notes(ctx, e.row)
	if err != nil {
		return err
	}
	return e.duel(ctx, r, duel{
		ours: func(ctx context.Context, pool *pgxpool.Pool, _ *pglock.Client) (op, error) {
			store, err := idem.New(pool, idem.Config{})
			if err != nil {
				return nil, err
			}
			again := func(ctx context.Context) error { return e.do(ctx, store, "replayed", insert) }
			return again, again(ctx)
		},
		plain: func(_ context.Context, pool *pgxpool.Pool, _ *pglock.Client) (op, error) {
			return func(ctx context.Context) error {
				var one int
				return pool.QueryRow(ctx, "SELECT 1").Scan(&one)
			}, nil
		},
	})
}
