package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// holder is a store whose goroutines have ended with the test.
func holder(t *testing.T, pool *pgxpool.Pool, cfg idem.Config) *idem.Store {
	t.Helper()
	s, err := idem.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// claim begins an attempt that must be granted.
func claim(t *testing.T, s *idem.Store, key idem.Key) *idem.Attempt {
	t.Helper()
	a, err := s.Begin(t.Context(), key, fp)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	if _, done := a.Replay(); done {
		t.Fatal("Begin replays, want a claim")
	}
	return a
}

// keyRow is what a key's row says; its zero value is none.
type keyRow struct {
	State     int
	Attempt   string
	AttemptNo int64
	LeaseLeft time.Duration // by the database's clock
	Left      time.Duration // until it expires
	Age       time.Duration // since created_at
	Body      []byte
	Version   string // where it is, and who wrote or locked it
}

func rowOf(t *testing.T, pool *pgxpool.Pool, key idem.Key) (r keyRow) {
	t.Helper()
	err := pgtest.Repeat(func() error {
		return pool.QueryRow(t.Context(), `
		SELECT state, attempt::text, attempt_no, coalesce(lease_until - clock_timestamp(), '0'), expires_at - clock_timestamp(),
			clock_timestamp() - created_at, body, format('%s %s %s', ctid, xmin, xmax)
		FROM gatepost.idempotency_keys WHERE operation = $1 AND scope = $2 AND key = $3`, key.Operation, key.Scope, key.Key,
		).Scan(&r.State, &r.Attempt, &r.AttemptNo, &r.LeaseLeft, &r.Left, &r.Age, &r.Body, &r.Version)
	})
	if err != nil && err != pgx.ErrNoRows { //nolint:errorlint // pgx's own
		t.Fatal(err)
	}
	return r
}

// change sets columns of a key's row, as if time had passed.
func change(t *testing.T, pool *pgxpool.Pool, key idem.Key, set string) {
	t.Helper()
	var tag pgconn.CommandTag
	err := pgtest.Repeat(func() (err error) {
		tag, err = pool.Exec(t.Context(), `UPDATE gatepost.idempotency_keys SET `+set+` WHERE operation = $1 AND scope = $2 AND key = $3`, key.Operation, key.Scope, key.Key)
		return err
	})
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("set %s: %d rows, %v", set, tag.RowsAffected(), err)
	}
}

// lapse backdates a lease, as if its holder had been stopped for long.
func lapse(t *testing.T, pool *pgxpool.Pool, key idem.Key) {
	t.Helper()
	change(t, pool, key, "lease_until = clock_timestamp() - interval '1 s'")
}

// steps counts the steps that are stored of a key.
func steps(t *testing.T, pool *pgxpool.Pool, key idem.Key) int {
	t.Helper()
	return value[int](t, pool, `SELECT count(*) FROM gatepost.idempotency_steps WHERE operation = $1 AND scope = $2 AND key = $3`, key.Operation, key.Scope, key.Key)
}

// soon is closed in time for a test that would otherwise hang.
func soon(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not within 20 s", what)
	}
}

// poolWith is a pool on the database of url, changed by each of change.
func poolWith(t *testing.T, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return pgtest.Connect(t, url, change...)
}

// setting starts each session of a pool with a setting.
func setting(name, value string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams[name] = value }
}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.MaxConns = n }
}
