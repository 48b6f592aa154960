package idem_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// verdict is what Begin made of a row.
type verdict string

const (
	isClaim     verdict = "claim"
	isTakeover  verdict = "claim after a previous one"
	isReplay    verdict = "replay"
	running     verdict = "in progress, with a lease"
	isBusy      verdict = "in progress"
	isMismatch  verdict = "isMismatch"
	isTombstone verdict = "replay unavailable"
)

func begins(t *testing.T, s *idem.Store, key idem.Key, fp idem.Fingerprint) verdict {
	t.Helper()
	a, err := s.Begin(t.Context(), key, fp)
	progress, isProgress := errors.AsType[*idem.InProgressError](err)
	gone, isGone := errors.AsType[*idem.ReplayUnavailableError](err)
	switch {
	case isProgress && progress.RetryAfter == 0:
		return isBusy
	case isProgress && progress.RetryAfter > 50*time.Second && progress.RetryAfter <= time.Minute:
		return running
	case isGone && gone.Status == 201 && gone.Size == 7 && (time.Since(gone.DoneAt)-2*time.Hour).Abs() < time.Hour:
		return isTombstone
	case errors.Is(err, idem.ErrMismatch):
		return isMismatch
	case err != nil:
		t.Fatalf("Begin: %v", err)
	}
	if got, done := a.Replay(); done {
		want := idem.Reply{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("stored\x00")}
		if !reflect.DeepEqual(got, want) || a.Previous() || !errors.Is(a.Err(), idem.ErrEnded) {
			t.Errorf("replay of %#v, Previous %t, Err %v; want %#v", got, a.Previous(), a.Err(), want)
		}
		return isReplay
	}
	if a.Previous() {
		return isTakeover
	}
	return isClaim
}

// Every row on arrival, by the clock, for the same and for another fingerprint.
var beginTable = []struct {
	name        string
	row         string // state, lease_until, expires_at, fingerprint_version
	same, other verdict
}{
	{"absent", "", isClaim, isClaim},
	{"running, live", "1, now() + '1 min', now() + '1 h', 1", running, isMismatch},
	{"running, live, record expired", "1, now() + '1 min', now() - '1 h'::interval, 1", running, isMismatch},
	{"running, lapsed", "1, now() - '1 s'::interval, now() + '1 h', 1", isTakeover, isMismatch},
	{"running, lapsed and expired", "1, now() - '1 h'::interval, now() - '1 s'::interval, 1", isClaim, isClaim},
	{"running, lapsed, other version", "1, now() - '1 s'::interval, now() + '1 h', 2", isMismatch, isMismatch},
	{"running without a lease", "1, NULL, now() + '1 h', 1", isBusy, isMismatch},
	{"running without a lease, expired", "1, NULL, now() - '1 s'::interval, 1", isClaim, isClaim},
	{"released", "4, NULL, now() + '1 h', 1", isTakeover, isMismatch},
	{"released, expired", "4, NULL, now() - '1 s'::interval, 1", isClaim, isClaim},
	{"released, other version", "4, NULL, now() + '1 h', 2", isMismatch, isMismatch},
	{"done", "2, NULL, now() + '1 h', 1", isReplay, isMismatch},
	{"done, expired", "2, NULL, now() - '1 s'::interval, 1", isClaim, isClaim},
	{"done, other version", "2, NULL, now() + '1 h', 2", isMismatch, isMismatch},
	{"tombstone", "3, NULL, now() + '1 h', 1", isTombstone, isMismatch},
	{"tombstone, expired", "3, NULL, now() - '1 s'::interval, 1", isClaim, isClaim},
}

func TestBegin_DecidesByTheTable(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	replica := poolWith(t, pgtest.Owner(t, pgtest.URL(t)), setting("session_replication_role", "replica")) // no trigger
	for _, c := range beginTable {
		for _, same := range []bool{true, false} {
			t.Run(c.name+map[bool]string{true: "", false: ", other fingerprint"}[same], func(t *testing.T) {
				t.Parallel()
				key, request, want := newKey(t), fp, c.same
				if !same {
					request, want = other, c.other
				}
				if c.row != "" {
					put(t, replica, key, c.row)
				}
				before := rowOf(t, pool, key)
				s := holder(t, pool, idem.Config{Retention: time.Hour})
				if got := begins(t, s, key, request); got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
				wantRow(t, before, rowOf(t, pool, key), want)
				if got, want := steps(t, pool, key), map[bool]int{true: 0, false: 1}[want == isClaim]; got != want {
					t.Errorf("%d steps, want %d", got, want)
				}
			})
		}
	}
}

// put writes a row with a step.
func put(t *testing.T, pool *pgxpool.Pool, key idem.Key, row string) {
	t.Helper()
	exec(t, pool, `
		WITH r (state, lease_until, expires_at, version) AS (VALUES (`+row+`))
		INSERT INTO gatepost.idempotency_keys
		SELECT $1, $2, $3, state, $4, version, gen_random_uuid(), 7, lease_until::timestamptz, 201, '{"A": ["b"]}',
			CASE WHEN state = 2 THEN 'stored\000'::bytea END, 7, NULL, now() - interval '2 h', now() - interval '2 h', expires_at
		FROM r`, key.Operation, key.Scope, key.Key, fp[:])
	exec(t, pool, `INSERT INTO gatepost.idempotency_steps VALUES ($1, $2, $3, 'old', 'x', now())`, key.Operation, key.Scope, key.Key)
}

// wantRow compares a row before and after Begin.
func wantRow(t *testing.T, before, after keyRow, got verdict) {
	t.Helper()
	if got != isClaim && got != isTakeover {
		if after.Version != before.Version {
			t.Errorf("row was written or locked: %s, then %s", before.Version, after.Version)
		}
		return
	}
	if after.State != 1 || after.Attempt == before.Attempt || after.AttemptNo != before.AttemptNo+1 || after.Body != nil {
		t.Errorf("row is %+v after %+v", after, before)
	}
	if after.LeaseLeft < 50*time.Second || after.LeaseLeft > time.Minute {
		t.Errorf("lease has %s left, want 1m", after.LeaseLeft)
	}
	if after.Left < 60*time.Minute || after.Left > 61*time.Minute {
		t.Errorf("expires in %s, want the lease and then 1h", after.Left)
	}
	if fresh := after.Age < time.Minute; fresh != (got == isClaim) {
		t.Errorf("created %s ago, Begin says: %s", after.Age, got)
	}
}

// A claim of transaction mode that is uncommitted holds nobody up, whatever row it
// has in its hands.
func TestBegin_DoesNotWaitForTransactionMode(t *testing.T) {
	t.Parallel()
	waits := &lockTimeouts{}
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = waits })
	for _, row := range []string{"", "2, NULL::timestamptz, now() - interval '1 s', 1"} {
		key, s := newKey(t), holder(t, pool, idem.Config{})
		if row != "" {
			put(t, pool, key, row)
		}
		_, err := s.Do(t.Context(), key, fp, nil, func(ctx context.Context, _ pgx.Tx) (idem.Reply, error) {
			if got := begins(t, s, key, fp); got != isBusy {
				t.Errorf("row %q: got %s, want %s", row, got, isBusy)
			}
			if waits.n.Load() > 0 {
				t.Errorf("row %q: Begin waited for a lock", row)
			}
			return idem.Reply{Status: 201, Header: map[string][]string{"A": {"b"}}, Body: []byte("stored\x00")}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := begins(t, s, key, fp); got != isReplay {
			t.Errorf("row %q: got %s after the commit, want %s", row, got, isReplay)
		}
	}
}

// Whoever inserts without the advisory lock is waited for briefly.
func TestBegin_WaitsBrieflyForAnInsertThatIsNotOurs(t *testing.T) {
	t.Parallel()
	waits, key := &lockTimeouts{}, newKey(t)
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = waits })
	tx := begin(t, pool, pgx.TxOptions{})
	_, err := tx.Exec(t.Context(), `
		INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, created_at, expires_at)
		VALUES ($1, $2, $3, 4, $4, 1, gen_random_uuid(), 1, now(), now() + interval '1 h')`, key.Operation, key.Scope, key.Key, fp[:])
	if err != nil {
		t.Fatal(err)
	}
	s := holder(t, pool, idem.Config{})
	if got := begins(t, s, key, fp); got != isBusy || waits.n.Load() == 0 {
		t.Errorf("got %s after %d waits, want %s after one", got, waits.n.Load(), isBusy)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := begins(t, s, key, fp); got != isTakeover {
		t.Errorf("got %s, want %s", got, isTakeover)
	}
}

func TestBegin_OneOfManyTakesOver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, row := range []string{"", "1, now() - interval '1 s', now() + interval '1 h', 1", "4, NULL::timestamptz, now() + interval '1 h', 1", "2, NULL::timestamptz, now() - interval '1 s', 1"} {
		key := newKey(t)
		if row != "" {
			put(t, pool, key, row)
		}
		var won atomic.Int32
		var racing sync.WaitGroup
		start := make(chan struct{})
		for range 16 {
			s := holder(t, pool, idem.Config{})
			racing.Go(func() {
				<-start
				switch _, err := s.Begin(t.Context(), key, fp); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, idem.ErrInProgress):
					t.Errorf("row %q: %v", row, err)
				}
			})
		}
		close(start)
		racing.Wait()
		if won.Load() != 1 {
			t.Errorf("row %q: %d stores have claimed it, want 1", row, won.Load())
		}
	}
}

func TestBegin_WorksAtEveryDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		pool := poolWith(t, pgtest.URL(t), setting("default_transaction_isolation", level), setting("default_transaction_read_only", "on"))
		key := newKey(t)
		var won, lost atomic.Int32
		var racing sync.WaitGroup
		for range 8 {
			s := holder(t, pool, idem.Config{})
			racing.Go(func() {
				for range 20 {
					a, err := s.Begin(t.Context(), key, fp)
					if errors.Is(err, idem.ErrInProgress) {
						lost.Add(1)
						continue
					}
					if err == nil {
						err = a.Release(t.Context())
					}
					if err != nil {
						t.Errorf("%s: %v", level, err)
					}
					won.Add(1)
				}
			})
		}
		racing.Wait()
		if won.Load() == 0 || won.Load()+lost.Load() != 8*20 {
			t.Errorf("%s: %d isClaim, %d in progress", level, won.Load(), lost.Load())
		}
	}
}

func TestBegin_RefusesWhatIsNoKey(t *testing.T) {
	t.Parallel()
	s := holder(t, pgtest.Pool(t), idem.Config{})
	_, err := s.Begin(t.Context(), idem.Key{Operation: "x", Key: "k"}, fp)
	wantErr(t, err, idem.ErrInvalidKey)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	_, err = s.Begin(t.Context(), key, fp)
	wantErr(t, err, idem.ErrClosed)
	if got := rowOf(t, pgtest.Pool(t), key); got.State != 0 { // nor given back: the next one would be told of it
		t.Errorf("a closed store has claimed: %+v", got)
	}
}
