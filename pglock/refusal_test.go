package pglock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// Workers that go on fencing after the lease expired, and are refused each time, don't
// keep the next holder out: a refusal locks nothing, even before it is rolled back.
func TestFence_RefusedForExpiryLocksNothing(t *testing.T) {
	t.Parallel()
	for name, fence := range map[string]func(context.Context, pgx.Tx, pglock.Sequencer, string) error{
		"the first of a transaction of ours": func(ctx context.Context, tx pgx.Tx, seq pglock.Sequencer, nonce string) error {
			_, err := lockdb.New(tx).LeaseFenceFirst(ctx, lockdb.LeaseFenceFirstParams{
				LimitMs: 10_000, Sequencer: seq.String(), Name: seq.Name(), Token: seq.Token(), Nonce: nonce,
			})
			return err
		},
		"another one of it": func(ctx context.Context, tx pgx.Tx, seq pglock.Sequencer, nonce string) error {
			_, err := lockdb.New(tx).LeaseFence(ctx, lockdb.LeaseFenceParams{
				Sequencer: seq.String(), Name: seq.Name(), Token: seq.Token(), Nonce: nonce,
			})
			return err
		},
		"in a transaction of the caller's": func(ctx context.Context, tx pgx.Tx, seq pglock.Sequencer, _ string) error {
			err := pglock.Fence(ctx, tx, seq)
			if !errors.Is(err, pglock.ErrExpired) {
				t.Errorf("Fence: %v, want ErrExpired", err)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, lease := pgtest.Pool(t), pgtest.Name(t)
			c := client(t, pool, pglock.Config{})
			seq := acquire(t, c, lease, nil).Sequencer()
			expire(t, pool, lease)
			tx := begin(t, pool, pgx.TxOptions{})
			if err := fence(t.Context(), tx, seq, nonce(t, pool, lease)); err == nil {
				t.Fatal("an expired lease was fenced")
			}
			acquire(t, c, lease, nil) // while tx is open
		})
	}
}
