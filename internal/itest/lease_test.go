package itest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestLease_OnlyTheCurrentHolderWrites(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	writes := table(t, pool, "note text")
	insert := func(note string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+writes+" VALUES ($1)", note)
			return err
		}
	}
	first, second := client(t, pool), client(t, pool)

	held, err := first.TryAcquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.TryAcquire(t.Context(), name, nil); !errors.Is(err, pglock.ErrHeld) {
		t.Fatalf("a second client: got %v, want %v", err, pglock.ErrHeld)
	}
	if err := held.InTx(t.Context(), insert("the holder")); err != nil {
		t.Fatalf("the holder's write: %v", err)
	}

	// A long pause, as the database sees one: the first goes on believing.
	exec(t, pool, `UPDATE gatepost.leases SET renewed_at = clock_timestamp() - interval '2 s',
		expires_at = clock_timestamp() - interval '1 s' WHERE name = $1`, name)
	taken, err := second.TryAcquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if taken.Token() <= held.Token() {
		t.Errorf("tokens: got %d after %d, want a higher one", taken.Token(), held.Token())
	}
	if err := first.InTx(t.Context(), held.Sequencer(), insert("the stale one")); !errors.Is(err, pglock.ErrFenced) {
		t.Errorf("the stale holder's write: got %v, want %v", err, pglock.ErrFenced)
	}
	if err := taken.InTx(t.Context(), insert("the next holder")); err != nil {
		t.Errorf("the next holder's write: %v", err)
	}
	if got := count(t, pool, writes); got != 2 {
		t.Errorf("got %d rows, want those of the two holders", got)
	}
}

// client is closed when the test ends.
func client(t *testing.T, pool *pgxpool.Pool) *pglock.Client {
	t.Helper()
	c, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
