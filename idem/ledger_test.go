package idem_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// work is what Do and DoTx run.
type work = func(context.Context, pgx.Tx) (idem.Reply, error)

// ledger counts effects: a plain row each, and nothing in the table that would keep
// a second one out.
type ledger struct {
	pool *pgxpool.Pool
	name string
}

func newLedger(t *testing.T, pool *pgxpool.Pool) ledger {
	t.Helper()
	return ledger{pool, table(t, pool, "note text").Sanitize()}
}

// write is work that makes an entry and ends so.
func (l ledger) write(note string, r idem.Reply, err error) work {
	return func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		if _, err := tx.Exec(ctx, "INSERT INTO "+l.name+" VALUES ($1)", note); err != nil {
			return idem.Reply{}, err
		}
		return r, err
	}
}

func (l ledger) want(t *testing.T, note string, n int) {
	t.Helper()
	if got := value[int](t, l.pool, "SELECT count(*) FROM "+l.name+" WHERE note = $1", note); got != n {
		t.Errorf("%d effects of %q, want %d", got, note, n)
	}
}

// unreached is work that must not be called.
func unreached(t *testing.T) work {
	t.Helper()
	return func(context.Context, pgx.Tx) (idem.Reply, error) {
		t.Error("the function ran")
		return idem.Reply{}, errors.New("the function ran")
	}
}

// created is a reply with everything in it.
var created = idem.Reply{Status: 201, Header: http.Header{"Location": {"/1"}}, Body: []byte(`{"id": 1}`)}

// wantResult fails unless the call gave that reply.
func wantResult(t *testing.T, got idem.Result, err error, want idem.Reply, replayed bool) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, idem.Result{Reply: want, Replayed: replayed}) {
		t.Fatalf("got %#v, want %#v, replayed = %t", got, want, replayed)
	}
}

// wantReplay fails unless the key has that reply stored.
func wantReplay(t *testing.T, s *idem.Store, key idem.Key, want idem.Reply) {
	t.Helper()
	got, err := s.Do(t.Context(), key, fp, nil, unreached(t))
	wantResult(t, got, err, want, true)
}

// wantFree fails unless the key can be claimed.
func wantFree(t *testing.T, s *idem.Store, key idem.Key) {
	t.Helper()
	got, err := s.Do(t.Context(), key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return idem.Reply{}, nil })
	wantResult(t, got, err, idem.Reply{}, false)
}

// wantFreeSoon is wantFree where the server must first notice that a connection is
// gone.
func wantFreeSoon(t *testing.T, s *idem.Store, key idem.Key) {
	t.Helper()
	got, err := s.Do(t.Context(), key, fp, &idem.Options{Wait: 20 * time.Second}, func(context.Context, pgx.Tx) (idem.Reply, error) { return idem.Reply{}, nil })
	wantResult(t, got, err, idem.Reply{}, false)
}

// inTx runs DoTx in a transaction of its own and commits it.
func inTx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, s *idem.Store, key idem.Key, f idem.Fingerprint, o *idem.Options, fn work) (r idem.Result, err error) {
	err = pgx.BeginTxFunc(ctx, pool, orReadCommitted(opts), func(tx pgx.Tx) error {
		r, err = s.DoTx(ctx, tx, key, f, o, fn)
		return err
	})
	return r, err
}

// waitUntil polls a state until it holds.
func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // polls a state
	}
}

// waitBlocked waits until a backend waits for a lock that tx holds.
func waitBlocked(t *testing.T, pool *pgxpool.Pool, tx pgx.Tx) {
	t.Helper()
	waitBlockedBy(t, pool, pgtest.Backend(t, tx))
}

func waitBlockedBy(t *testing.T, pool *pgxpool.Pool, pid uint32) {
	t.Helper()
	waitUntil(t, "a backend that waits", func() bool { return isBlockedBy(t, pool, pid) })
}

func isBlockedBy(t *testing.T, pool *pgxpool.Pool, pid uint32) bool {
	t.Helper()
	return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid)))`, int32(pid))
}

// atLevel is a pool whose sessions begin transactions at that level.
func atLevel(t *testing.T, level pgx.TxIsoLevel) *pgxpool.Pool {
	t.Helper()
	return pgtest.Connect(t, pgtest.URL(t)+"&default_transaction_isolation="+url.PathEscape(string(level)))
}

// readCommitted is for a pool whose tries, or whose round trips, are counted: at
// SERIALIZABLE other tests are conflicts, for which one is repeated. A pooler refuses it.
func readCommitted(cfg *pgxpool.Config) {
	if pgtest.Pooled() {
		return
	}
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
}

// ownDatabase is a pool on a database of the test's own, with a setting.
func ownDatabase(t *testing.T, settings ...string) *pgxpool.Pool {
	t.Helper()
	url := pgtest.Database(t)
	owner := pgtest.Connect(t, pgtest.Owner(t, url))
	name := pgx.Identifier{value[string](t, owner, "SELECT current_database()")}.Sanitize()
	for _, s := range settings {
		exec(t, owner, "ALTER DATABASE "+name+" SET "+s)
	}
	return pgtest.Connect(t, url) // connections of before wouldn't have it
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
