package idem_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func store(t *testing.T, pool *pgxpool.Pool, cfg idem.Config) *idem.Store {
	t.Helper()
	s, err := idem.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newKey is a key that no other test has.
func newKey(t *testing.T) idem.Key {
	t.Helper()
	return idem.Key{Operation: "test.do", Scope: idem.Global, Key: pgtest.Name(t)}
}

var fp = idem.FingerprintOf([]byte("request"))

// awkward are replies whose bytes JSON, text and UTF-8 have no room for.
var awkward = []idem.Reply{
	{},
	{Status: -1, Header: http.Header{}, Body: []byte{}},
	{Status: math.MaxInt32, Body: []byte("\x00")},
	{Status: math.MinInt32, Body: []byte(`"\u0000"`)},
	{Status: 200, Body: []byte("\xff\xfe\x00\xc3\x28")},
	{Status: 200, Header: http.Header{"X-Nul": {"a\x00b", "\xff", "é", "\u2028", `\u0000`, "\t", ""}, "base64:": {"base64:", "base64:%"}}},
	{Status: 200, Header: http.Header{"": nil, "\x00": {}, "\xff\x00": {"v"}, "A": {"1", "2", "1"}, "a": {"lower"}}},
	{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: bytes.Repeat([]byte("0123456789abcdef"), 1<<12)},
}

func TestDo_ReplaysByteForByte(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for way, call := range waysToCall(t, pool, s) {
		for i, want := range awkward {
			for _, end := range []error{nil, idem.Final(want), idem.FinalKeep(want)} {
				key := newKey(t)
				for try := range 2 {
					got, err := call(key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return want, end })
					if err != nil || !reflect.DeepEqual(got, idem.Result{Reply: want, Replayed: try > 0}) {
						t.Errorf("%s, reply %d, try %d: got %#v, %v, want %#v", way, i, try, got, err, want)
					}
				}
			}
		}
	}
}

func TestDo_ReplyOverTheLimitIsATombstone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{MaxBody: 1000})
	for way, call := range waysToCall(t, pool, s) {
		just := idem.Reply{Status: 200, Header: http.Header{"A": {"b"}}, Body: make([]byte, 1000)}
		key := newKey(t)
		got, err := call(key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return just, nil })
		wantResult(t, got, err, just, false)
		wantReplay(t, s, key, just)

		over := just
		over.Body = make([]byte, 1001)
		for _, end := range []error{nil, idem.Final(over)} {
			key = newKey(t)
			got, err = call(key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return over, end })
			wantResult(t, got, err, over, false)
			_, err = call(key, fp, nil, unreached(t))
			if e, ok := errors.AsType[*idem.ReplayUnavailableError](err); !ok || e.Status != 200 || e.Size != 1001 {
				t.Errorf("%s: %v, want ReplayUnavailableError{200, 1001}", way, err)
			}
			if n := value[int](t, pool, `SELECT num_nonnulls(headers, body) FROM gatepost.idempotency_keys WHERE key = $1`, key.Key); n != 0 {
				t.Errorf("%s: something of the reply was stored", way)
			}
		}
	}
}

func TestDo_RefusesWhatCantBeStored(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := store(t, pool, idem.Config{})
	for way, call := range waysToCall(t, pool, s) {
		key := newKey(t)
		_, err := call(key, fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return idem.Reply{Status: math.MaxInt32 + 1}, nil })
		if !errors.Is(err, idem.ErrInvalidReply) {
			t.Errorf("%s: %v, want ErrInvalidReply", way, err)
		}
		wantFree(t, s, key)
		for _, bad := range []idem.Key{
			{}, {Operation: "a", Scope: "b"}, {Operation: "a", Key: "c"}, {Scope: "b", Key: "c"},
			{Operation: "a", Scope: "b", Key: "a b"}, {Operation: "a", Scope: "b", Key: "é"}, {Operation: "a", Scope: "b", Key: "a\n"},
			{Operation: "a", Scope: "b", Key: strings.Repeat("k", 256)}, {Operation: "\xff", Scope: "b", Key: "c"},
			{Operation: "a", Scope: "\x00", Key: "c"}, {Operation: strings.Repeat("o", 201), Scope: "b", Key: "c"},
		} {
			_, err := call(bad, fp, nil, unreached(t))
			if !errors.Is(err, idem.ErrInvalidKey) {
				t.Errorf("%s: key %q: %v, want ErrInvalidKey", way, bad, err)
			}
		}
	}
	name := pgtest.Name(t)
	longest := idem.Key{Operation: strings.Repeat("o", 200), Scope: idem.Scope(strings.Repeat("é", 100)), Key: strings.Repeat("~", 255-len(name)) + name}
	wantFree(t, s, longest)
}

func TestDo_SameKeyElsewhereIsAnotherKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects, key := store(t, pool, idem.Config{}), newLedger(t, pool), newKey(t)
	keys := []idem.Key{key, {Operation: key.Operation, Scope: "tenant-2", Key: key.Key}, {Operation: "other", Scope: key.Scope, Key: key.Key}, {Operation: key.Operation, Scope: key.Scope, Key: strings.ToLower(key.Key)}}
	for _, k := range keys {
		got, err := s.Do(t.Context(), k, fp, nil, effects.write("x", idem.Reply{Body: []byte(k.String())}, nil))
		wantResult(t, got, err, idem.Reply{Body: []byte(k.String())}, false)
	}
	effects.want(t, "x", len(keys))
}

// Whatever a call comes to, the next one has the connection that it had, as it was.
func TestDo_KeepsItsConnection(t *testing.T) {
	t.Parallel()
	direct := pgtest.ReadCommitted(t)
	pool := modePoolOf(t, pgx.QueryExecModeExec, 1, new(atomic.Int64), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { t.Errorf("the server says: %s", n.Message) }
	})
	busy, holder := newKey(t), begin(t, direct, pgx.TxOptions{})
	s, before := store(t, pool, idem.Config{}), value[string](t, pool, `SELECT current_setting('lock_timeout')`)
	if _, err := s.DoTx(t.Context(), holder, busy, fp, nil, reply); err != nil {
		t.Fatal(err)
	}
	done, tombstone := newKey(t), newKey(t)
	rowState{state: 2, expires: "1 h"}.put(t, direct, done)
	rowState{state: 3, expires: "1 h"}.put(t, direct, tombstone)
	failing := func(context.Context, pgx.Tx) (idem.Reply, error) { return idem.Reply{}, errBusiness }
	for _, lookFirst := range []bool{false, true} {
		for what, call := range map[string]func(ctx context.Context) (idem.Result, error){
			"a first call": func(ctx context.Context) (idem.Result, error) { return s.Do(ctx, newKey(t), fp, nil, reply) },
			"its error":    func(ctx context.Context) (idem.Result, error) { return s.Do(ctx, newKey(t), fp, nil, failing) },
			"its panic": func(ctx context.Context) (idem.Result, error) {
				defer func() { _ = recover() }()
				return s.Do(ctx, newKey(t), fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { panic("as ordered") })
			},
			"the end of its ctx": func(ctx context.Context) (idem.Result, error) {
				ctx, cancel := context.WithCancel(ctx)
				return s.Do(ctx, newKey(t), fp, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { cancel(); return created, nil })
			},
			"a replay":    func(ctx context.Context) (idem.Result, error) { return s.Do(ctx, done, fp, nil, unreached(t)) },
			"a tombstone": func(ctx context.Context) (idem.Result, error) { return s.Do(ctx, tombstone, fp, nil, unreached(t)) },
			"in progress": func(ctx context.Context) (idem.Result, error) { return s.Do(ctx, busy, fp, nil, unreached(t)) },
			"a wait": func(ctx context.Context) (idem.Result, error) {
				return s.Do(ctx, busy, fp, &idem.Options{Wait: 20 * time.Millisecond}, unreached(t))
			},
		} {
			idem.LookFirst(s, lookFirst)
			_, _ = call(t.Context())
			var left int
			var lockTimeout string
			err := pool.QueryRow(t.Context(), `SELECT count(*), current_setting('lock_timeout') FROM pg_locks
				WHERE pid = pg_backend_pid() AND locktype = 'advisory'`).Scan(&left, &lockTimeout)
			if err != nil || left != 0 || lockTimeout != before {
				t.Errorf("%s, look first = %t: it left %d locks and a lock_timeout of %s, %v", what, lookFirst, left, lockTimeout, err)
			}
			if n := pool.Stat().NewConnsCount(); n != 1 {
				t.Fatalf("%s, look first = %t: its connection is gone", what, lookFirst)
			}
		}
	}
}
