package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rowState is a row as a test finds it.
type rowState struct {
	state   int
	version int    // of the fingerprint; 0: the current one
	lease   string // interval until it ends; empty: none
	expires string // interval until the record does
}

// put writes a row for a key, with the fingerprint fp.
func (r rowState) put(t *testing.T, db idem.DBTX, key idem.Key) {
	t.Helper()
	var lease *string
	if r.lease != "" {
		lease = &r.lease
	}
	_, err := db.Exec(t.Context(), `
		INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no,
			lease_until, status, headers, body, body_len, created_at, done_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, gen_random_uuid(), 7, clock_timestamp() + $7::text::interval,
			201, '{"Location": ["/1"]}', '{"id": 1}', 9, clock_timestamp() - interval '1 h', clock_timestamp(), clock_timestamp() + $8::text::interval)`,
		key.Operation, string(key.Scope), key.Key, r.state, fp[:], max(1, r.version), lease, r.expires)
	if err != nil {
		t.Fatal(err)
	}
}

// event is what a call came to.
type event string

const (
	ran         event = "ran"
	replayed    event = "replayed"
	inProgress  event = "in progress"
	mismatch    event = "mismatch"
	unavailable event = "replay unavailable"
)

func eventOf(r idem.Result, err error) event {
	switch {
	case err == nil && r.Replayed:
		return replayed
	case err == nil:
		return ran
	case errors.Is(err, idem.ErrInProgress):
		return inProgress
	case errors.Is(err, idem.ErrMismatch):
		return mismatch
	case errors.Is(err, idem.ErrReplayUnavailable):
		return unavailable
	default:
		return event(err.Error())
	}
}

// cells is the table of states, for the same fingerprint and for another one.
var cells = []struct {
	name        string
	row         *rowState
	same, other event
}{
	{"absent", nil, ran, ran},
	{"running, live lease", &rowState{state: 1, lease: "30 s", expires: "1 h"}, inProgress, mismatch},
	{"running, lapsed lease", &rowState{state: 1, lease: "-1 s", expires: "1 h"}, inProgress, mismatch},
	{"running, live lease, expired", &rowState{state: 1, lease: "30 s", expires: "-1 s"}, inProgress, mismatch},
	{"running, lapsed lease, expired", &rowState{state: 1, lease: "-1 s", expires: "-1 s"}, ran, ran},
	{"done, live", &rowState{state: 2, expires: "1 h"}, replayed, mismatch},
	{"done, expired", &rowState{state: 2, expires: "-1 s"}, ran, ran},
	{"tombstone, live", &rowState{state: 3, expires: "1 h"}, unavailable, mismatch},
	{"tombstone, expired", &rowState{state: 3, expires: "-1 s"}, ran, ran},
	{"released", &rowState{state: 4, expires: "1 h"}, ran, mismatch},
	{"released, expired", &rowState{state: 4, expires: "-1 s"}, ran, ran},
	{"running, other version", &rowState{state: 1, version: 2, lease: "30 s", expires: "1 h"}, mismatch, mismatch},
	{"done, other version", &rowState{state: 2, version: 2, expires: "1 h"}, mismatch, mismatch},
	{"released, other version", &rowState{state: 4, version: 2, expires: "1 h"}, mismatch, mismatch},
	{"done, other version, expired", &rowState{state: 2, version: 2, expires: "-1 s"}, ran, ran},
}

// waysToCall are Do, which claims at once or looks first, and DoTx at each isolation
// level. SERIALIZABLE is for a database of the test's own: in the shared one, other
// tests' rows are in conflict.
func waysToCall(t *testing.T, pool *pgxpool.Pool, s *idem.Store) map[string]func(idem.Key, idem.Fingerprint, *idem.Options, work) (idem.Result, error) {
	t.Helper()
	do := func(first bool) func(idem.Key, idem.Fingerprint, *idem.Options, work) (idem.Result, error) {
		return func(key idem.Key, f idem.Fingerprint, o *idem.Options, fn work) (idem.Result, error) {
			idem.LookFirst(s, first)
			return s.Do(t.Context(), key, f, o, fn)
		}
	}
	ways := map[string]func(idem.Key, idem.Fingerprint, *idem.Options, work) (idem.Result, error){
		"Do at once": do(false), "Do behind a look": do(true),
	}
	for _, level := range levels {
		if level == pgx.Serializable && pool.Config().ConnConfig.Database == pgtest.Pool(t).Config().ConnConfig.Database {
			continue
		}
		ways["DoTx at "+string(level)] = func(key idem.Key, f idem.Fingerprint, o *idem.Options, fn work) (idem.Result, error) {
			return inTx(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, s, key, f, o, fn)
		}
	}
	return ways
}

func TestStates_AreAnsweredAsTheTableSays(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := ownDatabase(t, fmt.Sprintf("default_transaction_isolation = '%s'", level))
			s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
			for way, call := range waysToCall(t, pool, s) {
				for _, cell := range cells {
					for _, o := range []*idem.Options{nil, {Wait: 50 * time.Millisecond}} {
						for f, want := range map[idem.Fingerprint]event{fp: cell.same, idem.FingerprintOf([]byte("other")): cell.other} {
							key := newKey(t)
							if cell.row != nil {
								cell.row.put(t, pool, key)
							}
							got, err := call(key, f, o, effects.write(key.Key, created, nil))
							if eventOf(got, err) != want {
								t.Errorf("%s, %s, same = %t: %s, want %s", way, cell.name, f == fp, eventOf(got, err), want)
							}
							effects.want(t, key.Key, map[bool]int{want == ran: 1}[true])
						}
					}
				}
			}
		})
	}
}

func TestStates_ErrorsSayWhatIsKnown(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for way, call := range waysToCall(t, pool, store(t, pool, idem.Config{})) {
		key := newKey(t)
		rowState{state: 1, lease: "30 s", expires: "1 h"}.put(t, pool, key)
		_, err := call(key, fp, nil, unreached(t))
		if e, ok := errors.AsType[*idem.InProgressError](err); !ok || e.RetryAfter < 20*time.Second || e.RetryAfter > 30*time.Second {
			t.Errorf("%s: live lease: %v, want InProgressError with what is left of 30 s", way, err)
		}
		key = newKey(t)
		rowState{state: 1, lease: "-30 s", expires: "1 h"}.put(t, pool, key)
		_, err = call(key, fp, nil, unreached(t))
		if e, ok := errors.AsType[*idem.InProgressError](err); !ok || e.RetryAfter != 0 {
			t.Errorf("%s: lapsed lease: %v, want InProgressError without a time", way, err)
		}
		key = newKey(t)
		rowState{state: 3, expires: "1 h"}.put(t, pool, key)
		_, err = call(key, fp, nil, unreached(t))
		if e, ok := errors.AsType[*idem.ReplayUnavailableError](err); !ok || e.Status != 201 || e.Size != 9 || time.Since(e.DoneAt).Abs() > time.Minute {
			t.Errorf("%s: tombstone: %v, want ReplayUnavailableError{201, 9, now}", way, err)
		}
	}
}

// A claim of a row that was there counts its attempts on, and begins a new record
// where the old one has expired; steps of the old record are gone then.
func TestStates_OldRowBecomesTheNewRecord(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for way, call := range waysToCall(t, pool, store(t, pool, idem.Config{})) {
		for _, row := range []rowState{{state: 1, lease: "-1 s", expires: "-1 s"}, {state: 3, expires: "-1 s"}, {state: 4, expires: "1 h"}} {
			for _, end := range []error{nil, idem.Final(created), idem.FinalKeep(created)} {
				key := newKey(t)
				row.put(t, pool, key)
				exec(t, pool, `INSERT INTO gatepost.idempotency_steps VALUES ($1, $2, $3, 'a', '', clock_timestamp() - interval '1 s')`, key.Operation, string(key.Scope), key.Key)
				got, err := call(key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return created, end })
				wantResult(t, got, err, created, false)
				ok := value[bool](t, pool, `SELECT state = 2 AND attempt_no = 8 AND lease_until IS NULL AND codec IS NULL
					AND status = 201 AND body_len = 9 AND (created_at > clock_timestamp() - interval '1 min') = $2
					AND (SELECT count(*) FROM gatepost.idempotency_steps AS s WHERE s.key = k.key) = CASE WHEN $2 THEN 0 ELSE 1 END
					AND expires_at BETWEEN clock_timestamp() + interval '23 h' AND clock_timestamp() + interval '25 h'
					FROM gatepost.idempotency_keys AS k WHERE key = $1`, key.Key, row.expires == "-1 s")
				if !ok {
					t.Errorf("%s, %+v, ended with %v: the row is not as it should be", way, row, end)
				}
			}
		}
	}
}

func TestStates_ExpiryIsByTheDatabasesClockFromWhenItWasStored(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for way, call := range waysToCall(t, pool, store(t, pool, idem.Config{Retention: time.Second})) {
		key := newKey(t)
		got, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			_, err := tx.Exec(ctx, `SELECT pg_sleep(1.1)`) // longer than the retention
			return created, err
		})
		wantResult(t, got, err, created, false)
		left := value[float64](t, pool, `SELECT extract(epoch FROM expires_at - done_at)::float8 FROM gatepost.idempotency_keys WHERE key = $1`, key.Key)
		if left < 1 || left > 1.02 {
			t.Errorf("%s: the record lives for %.3f s after it was stored, want 1 s", way, left)
		}
		got, err = call(key, fp, nil, unreached(t))
		wantResult(t, got, err, created, true)
		waitUntil(t, "expiry", func() bool {
			return value[bool](t, pool, `SELECT expires_at < clock_timestamp() FROM gatepost.idempotency_keys WHERE key = $1`, key.Key)
		})
		got, err = call(key, fp, nil, reply)
		wantResult(t, got, err, created, false)
	}
}

// The clock is the database's now, not that of when the caller's transaction began.
func TestStates_ExpiryInsideOfATransaction(t *testing.T) {
	t.Parallel()
	pool := ownDatabase(t)
	s := store(t, pool, idem.Config{})
	for _, row := range []rowState{{state: 2, expires: "200 ms"}, {state: 1, lease: "200 ms", expires: "200 ms"}} {
		for _, level := range levels {
			key := newKey(t)
			row.put(t, pool, key)
			tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
			if _, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.3)`); err != nil {
				t.Fatal(err)
			}
			got, err := s.DoTx(t.Context(), tx, key, idem.FingerprintOf(nil), nil, reply)
			wantResult(t, got, err, created, false)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Finish changes the row of its own attempt only, and without that nothing commits.
func TestStates_AttemptThatIsNoLongerItsOwnIsFenced(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for way, call := range waysToCall(t, pool, s) {
		for _, steal := range []string{
			`UPDATE gatepost.idempotency_keys SET attempt = gen_random_uuid() WHERE key = $1`,
			`UPDATE gatepost.idempotency_keys SET state = 4 WHERE key = $1`,
			`DELETE FROM gatepost.idempotency_keys WHERE key = $1`,
		} {
			for _, end := range []error{nil, idem.FinalKeep(created)} {
				key := newKey(t)
				_, err := call(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
					r, err := effects.write(key.Key, created, end)(ctx, tx)
					_, stealErr := tx.Exec(ctx, steal, key.Key)
					return r, errors.Join(err, stealErr)
				})
				if !errors.Is(err, idem.ErrFenced) {
					t.Errorf("%s, %s: %v, want ErrFenced", way, steal, err)
				}
				effects.want(t, key.Key, 0)
				wantFree(t, s, key)
			}
		}
	}
}

// What a hand or another program writes is held to what this package relies on.
func TestSchema_RefusesRowsThatNoKeyCanHave(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, value := range []string{
		`''::gatepost.idem_key`, `'a b'::gatepost.idem_key`, `E'a\n'::gatepost.idem_key`, "'\u00e9'::gatepost.idem_key", `repeat('x', 256)::gatepost.idem_key`,
		`''::gatepost.idem_scope`, `repeat('x', 201)::gatepost.idem_scope`, `''::gatepost.idem_operation`, `repeat('x', 201)::gatepost.idem_operation`,
		`'\x00'::gatepost.idem_fingerprint`, `5::smallint::gatepost.idem_state`,
	} {
		_, err := pool.Exec(t.Context(), "SELECT "+value)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23514" {
			t.Errorf("%s: %v, want 23514", value, err)
		}
	}
}
