package pglock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// On a full disk nothing is granted that isn't stored, and what is held stays so: a page
// has room for the beats of its rows. Who waits goes on, without a place in the queue.
func TestDiskFull_GrantsNothingAndLosesNothing(t *testing.T) {
	t.Parallel()
	disk := pgtest.NewDisk(t)
	cfg := pglock.Config{TTL: 10 * time.Second, RenewEvery: 20 * time.Millisecond, PollInterval: 100 * time.Millisecond}
	c, name, guarded := client(t, disk.Pool, cfg), pgtest.Name(t), table(t, disk.Pool)
	l := acquire(t, c, name, nil)
	disk.Fill(t)

	refused := firstRefused(t, c)
	waiting := granted(t, client(t, poolWith(t, disk.Server.URL(""), maxConns(2)), cfg), name)
	wantDiskFull(t, l.InTx(t.Context(), func(tx pgx.Tx) error { return fillPages(t, tx, guarded) }))
	for range 3 {
		renewedAgain(t, disk.Pool, name) // by beats: one call has 250 ms only
	}
	if err := l.Err(); err != nil {
		t.Fatalf("the lease is lost on a full disk: %v", err)
	}
	if n := value[int](t, disk.Pool, "SELECT count(*) FROM "+guarded); n != 0 {
		t.Errorf("%d rows of a transaction that failed are there", n)
	}
	release(t, l)
	next := within(t, 20*time.Second, waiting)
	if next == nil {
		return
	}
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	release(t, next)

	disk.Free(t)
	release(t, acquire(t, c, refused, nil))
}

// firstRefused takes new names until one finds no room, and returns that one.
func firstRefused(t *testing.T, c *pglock.Client) (name string) {
	t.Helper()
	for i := range 1000 {
		name := fmt.Sprintf("%s/%d/%s", t.Name(), i, strings.Repeat("x", 150))
		l, err := c.TryAcquire(t.Context(), name, nil)
		if err == nil {
			release(t, l)
			continue
		}
		wantDiskFull(t, err)
		if info, err := c.Get(t.Context(), name); err != nil || info.Token != 0 {
			t.Fatalf("a name that was refused has the row %+v (%v)", info, err)
		}
		return name
	}
	t.Fatal("the disk is not full: this test proves nothing")
	return ""
}

// wantDiskFull says that it is the server's error, and none that says more of a lease.
func wantDiskFull(t *testing.T, err error) {
	t.Helper()
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "53100" {
		t.Fatalf("error is %v, want the server's 53100, disk_full", err)
	}
	for _, wrong := range []error{
		pglock.ErrHeld, pglock.ErrLost, pglock.ErrFenced, pglock.ErrFenceTimeout, pglock.ErrFenceMisplaced,
		pglock.ErrCommitUnknown, pglock.ErrNotMigrated, pglock.ErrInvalidName,
	} {
		if errors.Is(err, wrong) {
			t.Errorf("%v matches %v", err, wrong)
		}
	}
}

// fillPages writes until there is no room.
func fillPages(t *testing.T, tx pgx.Tx, table string) error {
	t.Helper()
	for range 1000 {
		if err := insert(t.Context(), tx, table, strings.Repeat("x", 1000)); err != nil {
			return err
		}
	}
	return nil
}
