package pglock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// nonce reads what Lease keeps to itself.
func nonce(t *testing.T, pool *pgxpool.Pool, name string) string {
	t.Helper()
	return value[string](t, pool, `SELECT nonce::text FROM gatepost.leases WHERE name = $1`, name)
}

const otherNonce = "00000000-0000-4000-8000-000000000000"

// renewal is a renewal of one lease, as a heartbeat sends it.
func renewal(name string, token int64, nonce string) lockdb.LeaseRenewParams {
	return lockdb.LeaseRenewParams{
		Names: []string{name}, Slots: []int32{0}, Tokens: []int64{token}, Nonces: []string{nonce}, TtlsUs: []int64{60e6},
	}
}

func TestRenew_RefusesAfterExpiry(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{}), name, nil)
	expire(t, pool, name)
	before := row(t, pool, name)
	wantErr(t, l.Renew(t.Context()), pglock.ErrExpired)
	if after := row(t, pool, name); !after.Expires.Equal(before.Expires) {
		t.Error("a lapsed lease came back to life")
	}
	soon(t, "Done", l.Done())
	wantErr(t, l.Err(), pglock.ErrExpired)
}

func TestRenew_RefusesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{})
	q := lockdb.New(pool)
	for what, change := range map[string]string{
		"nothing":           `SELECT $1::text`,
		"another's token":   `UPDATE gatepost.leases SET token = token + 1 WHERE name = $1`,
		"another's nonce":   `UPDATE gatepost.leases SET nonce = gen_random_uuid() WHERE name = $1`,
		"released":          `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`,
		"deleted":           `DELETE FROM gatepost.leases WHERE name = $1`,
		"lapsed":            `UPDATE gatepost.leases SET renewed_at = now() - interval '2 s', expires_at = now() - interval '1 s' WHERE name = $1`,
		"lapsed by a blink": `UPDATE gatepost.leases SET expires_at = clock_timestamp() WHERE name = $1`,
	} {
		t.Run(what, func(t *testing.T) {
			name := pgtest.Name(t)
			l := acquire(t, c, name, nil)
			args := renewal(name, l.Token(), nonce(t, pool, name))
			exec(t, pool, change, name)
			state := func() string {
				return value[string](t, pool, `SELECT coalesce(string_agg(l::text, '' ORDER BY slot), 'none') FROM gatepost.leases AS l WHERE name = $1`, name)
			}
			before := state()

			got, err := q.LeaseRenew(t.Context(), args)
			if err != nil || len(got) != 1 {
				t.Fatalf("%v, %v; want one row", got, err)
			}
			if what == "nothing" {
				if !got[0].Renewed || state() == before {
					t.Fatal("not renewed: this test proves nothing")
				}
				return
			}
			if got[0].Renewed || state() != before {
				t.Errorf("renewed: %+v; the row went from %s to %s", got[0], before, state())
			}
			lapsed := what == "lapsed" || what == "lapsed by a blink"
			if got[0].Mine != lapsed || got[0].Lapsed != lapsed {
				t.Errorf("%+v, want mine and lapsed to be %t", got[0], lapsed)
			}
		})
	}
}

// An expiry from a clock that was ahead is not kept: the next renewal puts it right.
func TestRenew_ShortensWhatIsTooFarAhead(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, asleep(t, pool), name, nil)
	exec(t, pool, `UPDATE gatepost.leases SET expires_at = expires_at + interval '1 day' WHERE name = $1`, name)
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := row(t, pool, name); r.TTL > time.Hour {
		t.Errorf("it lasts %s", r.TTL)
	}
}

// A renewal whose reply was lost is simply sent again.
func TestRenew_CanBeRepeated(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{}), name, nil)
	args := renewal(name, l.Token(), nonce(t, pool, name))
	for range 3 {
		if got, err := lockdb.New(pool).LeaseRenew(t.Context(), args); err != nil || !got[0].Renewed {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

func TestRenew_RowThatIsLockedIsNeverNotOurs(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.ReadCommitted(t), pgtest.Name(t)
	l := acquire(t, client(t, pool, pglock.Config{TTL: 60 * time.Second, RenewEvery: 50 * time.Millisecond}), name, nil)
	other := lockRow(t, pool, name)

	soon, giveUp := context.WithTimeout(t.Context(), 20*time.Second) // it doesn't wait for the row
	defer giveUp()
	got, err := lockdb.New(pool).LeaseRenew(soon, renewal(name, l.Token(), nonce(t, pool, name)))
	if err != nil || got[0].Renewed || !got[0].Mine || got[0].Lapsed {
		t.Fatalf("%+v, %v; want it to be ours and not renewed, without a wait", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // several heartbeats
	defer cancel()
	err = l.Renew(ctx)
	wantErr(t, err, context.DeadlineExceeded)
	if errors.Is(err, pglock.ErrLost) || l.Err() != nil {
		t.Fatalf("Renew: %v, Err: %v; want the lease to be held", err, l.Err())
	}
	commit(t, other)
	renewedAgain(t, pool, name)
}

// Rule T. The statements of a lease run in short transactions of their own, and
// the fence in one of any age; so each is tried in an old one.
func TestClock_IsReadByTheStatementAndNotByTheTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{RenewEvery: 20 * time.Second})
	kept, gone, free, lapsing := pgtest.Name(t), pgtest.Name(t), pgtest.Name(t), pgtest.Name(t)
	keptLease, goneLease := acquire(t, c, kept, nil), acquire(t, c, gone, nil)
	lapsingLease := acquire(t, c, lapsing, nil)
	exec(t, pool, `UPDATE gatepost.leases SET expires_at = clock_timestamp() + $2 WHERE name = ANY ($1)`, []string{gone, lapsing}, lapseAfter)

	tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil { // now() stands still from here
		t.Fatal(err)
	}
	old := waitForClock(t, pool, lapseAfter)
	q := lockdb.New(tx)

	renewed, err := q.LeaseRenew(t.Context(), renewal(kept, keptLease.Token(), nonce(t, pool, kept)))
	if err != nil || !renewed[0].Renewed {
		t.Fatalf("%+v, %v", renewed, err)
	}
	lapsed, err := q.LeaseRenew(t.Context(), renewal(gone, goneLease.Token(), nonce(t, pool, gone)))
	if err != nil || lapsed[0].Renewed || !lapsed[0].Lapsed {
		t.Errorf("renewal of a lapsed lease: %+v, %v", lapsed, err)
	}
	byNonce := lockdb.LeaseByNonceParams{Name: gone, Nonce: nonce(t, pool, gone)}
	if _, err := q.LeaseByNonce(t.Context(), byNonce); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("look-up of a lapsed lease: %v", err)
	}
	wantErr(t, pglock.Fence(t.Context(), tx, goneLease.Sequencer()), pglock.ErrExpired)
	live, err := q.LeaseRelease(t.Context(), lockdb.LeaseReleaseParams{Name: gone, Nonce: nonce(t, pool, gone)})
	if err != nil || live {
		t.Errorf("release of a lapsed lease: live = %t, %v", live, err)
	}
	took, err := q.LeaseTake(t.Context(), lockdb.LeaseTakeParams{Name: lapsing, Nonce: otherNonce, Holder: "new", TtlUs: 60e6})
	if err != nil {
		t.Fatal(err)
	}
	made, err := q.LeaseInsert(t.Context(), lockdb.LeaseInsertParams{Name: free, Nonce: otherNonce, Holder: "new", TtlUs: 60e6})
	if err != nil {
		t.Fatal(err)
	}
	if took < old.UnixMicro() || made.Token < old.UnixMicro() || took <= lapsingLease.Token() {
		t.Errorf("tokens %d and %d are older than %d", took, made.Token, old.UnixMicro())
	}
	commit(t, tx)
	for _, name := range []string{kept, lapsing, free} {
		if r := row(t, pool, name); r.Renewed.Before(old) || r.TTL != time.Minute {
			t.Errorf("%s: renewed at %s for %s, want after %s for 1 m", name, r.Renewed, r.TTL, old)
		}
	}
}

// Rule T. An acquisition and a renewal wait for no row lock (SKIP LOCKED), so
// that there is no clock from before a wait. A release does wait, and so does a
// fence (TestFence_ExpiryIsReadAfterTheLock).
func TestRelease_ReadsTheClockAfterTheLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	l, err := waitsUntilItLapsed(t, pool, func(l *pglock.Lease) func() error {
		return func() error { return l.Release(context.WithoutCancel(t.Context())) }
	})
	wantErr(t, err, pglock.ErrExpired)
	if row(t, pool, l.Name()).Held {
		t.Error("the row isn't free")
	}
}

// Not parallel: an open transaction in another database keeps PostgreSQL from
// looking again at what it may prune.
func TestRenew_StaysInTheHeapPage(t *testing.T) { //nolint:paralleltest // see above
	pool := pgtest.Connect(t, pgtest.Database(t))
	c := client(t, pool, pglock.Config{})
	var leases []*pglock.Lease
	for range 5 {
		leases = append(leases, acquire(t, c, pgtest.Name(t), nil))
	}
	const each = 80
	for range each {
		for _, l := range leases {
			if err := l.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	total := int64(each * len(leases))
	var updated, hot int64
	eventually(t, "statistics", 15*time.Second, func() bool {
		updated = value[int64](t, pool, `SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'gatepost.leases'::regclass`)
		hot = value[int64](t, pool, `SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'gatepost.leases'::regclass`)
		_ = leases[0].Renew(t.Context()) // its backend tells what it did only when it does more
		return updated >= total
	})
	if hot*100 < updated*95 {
		t.Errorf("%d of %d renewals were HOT, want 95 %%", hot, updated)
	}
}

// Two renewals of one client and a release at the same time leave the row free.
func TestRenew_NeverUndoesARelease(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{RenewEvery: time.Millisecond})
	for range 20 {
		name := pgtest.Name(t)
		l := acquire(t, c, name, nil)
		done := make(chan error, 2)
		for range cap(done) {
			go func() {
				// A try takes a quarter of a second at most here, and waits for the beats' too.
				err := context.DeadlineExceeded
				for errors.Is(err, context.DeadlineExceeded) {
					err = l.Renew(context.WithoutCancel(t.Context()))
				}
				done <- err
			}()
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range cap(done) {
			if err := <-done; err != nil && !errors.Is(err, pglock.ErrReleased) {
				t.Errorf("Renew: %v", err)
			}
		}
		if row(t, pool, name).Held {
			t.Fatal("the row is held after Release")
		}
	}
}

// The rows of one statement are locked in the order of their keys, so that two
// statements over the same rows can't deadlock.
func TestRenew_ManyAtOnceInAnyOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := client(t, pool, pglock.Config{})
	var forward lockdb.LeaseRenewParams
	for range 10 {
		name := pgtest.Name(t)
		l := acquire(t, c, name, nil)
		one := renewal(name, l.Token(), nonce(t, pool, name))
		forward.Names = append(forward.Names, one.Names...)
		forward.Slots = append(forward.Slots, one.Slots...)
		forward.Tokens = append(forward.Tokens, one.Tokens...)
		forward.Nonces = append(forward.Nonces, one.Nonces...)
		forward.TtlsUs = append(forward.TtlsUs, one.TtlsUs...)
	}
	forward.Tokens[3]++ // one that isn't ours among them
	got, err := lockdb.New(pool).LeaseRenew(t.Context(), forward)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got {
		if want := r.Ord != 4; r.Renewed != want || r.Mine != want {
			t.Errorf("%+v, want renewed to be %t", r, want)
		}
	}
	if len(got) != len(forward.Names) || !slices.IsSortedFunc(got, func(a, b lockdb.LeaseRenewRow) int { return int(a.Ord - b.Ord) }) {
		t.Logf("%d rows of %d in some order", len(got), len(forward.Names))
	}
}
