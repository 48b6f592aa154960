//go:build linux

package faults_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// soaking is a service that does the same thing for hours.
type soaking struct {
	t      *testing.T
	admin  *pgxpool.Pool
	pool   *pgxpool.Pool
	client *pglock.Client
	store  *idem.Store
	thirds [3]third
	late   lateRenewals
}

const (
	soakers = 6
	soakApp = "soak" // what pg_stat_activity calls it
)

// A service that runs for long stays what it was: no goroutine and no connection is
// left over, calls take as long as in the beginning, and the tables are as large as what
// is in them. A snapshot that somebody holds for a third of the time keeps dead rows, as
// it must; when it is let go, they make room.
//
//nolint:paralleltest // it measures
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("it takes a while: -faults.soak=1m")
	}
	s := newSoaking(t)
	before := runtime.NumGoroutine()
	s.open()
	var held pgx.Tx
	for i := range s.thirds {
		if i == 1 {
			held = s.snapshot()
		}
		s.thirds[i] = s.third(*soak / 3)
		if i == 1 {
			if err := held.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s.measure(&s.thirds[i])
		t.Logf("third %d: %s", i+1, &s.thirds[i])
	}
	s.close()
	s.judge(before)
}

func newSoaking(t *testing.T) *soaking {
	t.Helper()
	server, err := pgtemp.Start(t.Context(), &pgtemp.Options{Settings: map[string]string{"autovacuum_naptime": "2s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &soaking{t: t, admin: pgtest.Connect(t, server.URL(""))}
	if err := migrations.Up(t.Context(), s.admin); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.Exec(t.Context(), `CREATE TABLE soaked (name text PRIMARY KEY, n bigint NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	cfg, err := pgxpool.ParseConfig(server.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = soakers
	cfg.ConnConfig.RuntimeParams["application_name"] = soakApp
	if s.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *soaking) open() {
	var err error
	if s.client, err = pglock.New(s.pool, pglock.Config{TTL: 2 * time.Second, RenewEvery: 100 * time.Millisecond, Tracer: &s.late}); err != nil {
		s.t.Fatal(err)
	}
	if s.store, err = idem.New(s.pool, idem.Config{Retention: 5 * time.Second}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *soaking) close() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.client.Close(ctx); err != nil {
		s.t.Error(err)
	}
	if err := s.store.Close(ctx); err != nil {
		s.t.Error(err)
	}
	s.pool.Close()
}

// snapshot holds one, as a report or a forgotten session does.
func (s *soaking) snapshot() pgx.Tx {
	s.t.Helper()
	tx, err := s.admin.BeginTx(s.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(s.t.Context(), `SELECT FROM gatepost.leases`)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return tx
}

// third works for a while and measures.
func (s *soaking) third(length time.Duration) (m third) {
	ctx, cancel := context.WithTimeout(s.t.Context(), length)
	defer cancel()
	before := s.late.Load()
	defer func() { m.late = s.late.Load() - before }()
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range soakers {
		all.Go(func() {
			var mine []time.Duration
			for n := 0; ctx.Err() == nil; n++ {
				start := time.Now()
				s.once(context.WithoutCancel(ctx), i, n) // to the end, also the last one
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			m.took = append(m.took, mine...)
		})
	}
	all.Go(func() {
		for ; ctx.Err() == nil; pause(ctx, time.Second) {
			if _, err := s.store.GC(ctx); err != nil && ctx.Err() == nil {
				s.t.Error(err)
			}
			m.connections = max(m.connections, s.connections(ctx))
		}
	})
	all.Wait()
	return m
}

// once is one piece of work: a lease, a fenced write, and something done once.
func (s *soaking) once(ctx context.Context, soaker, n int) {
	name := fmt.Sprintf("soak/%d", soaker)
	err := s.client.Do(ctx, name, nil, func(ctx context.Context, l *pglock.Lease) error {
		key := idem.Key{Operation: "soak", Scope: "soak", Key: fmt.Sprintf("%d-%d-%d", soaker, n, now())}
		_, err := s.store.Do(ctx, key, fingerprint, nil, func(context.Context, pgx.Tx) (idem.Reply, error) { return reply(), nil })
		if err != nil {
			return err
		}
		return l.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO soaked AS s VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = s.n + 1`, name)
			return err
		})
	})
	if err != nil {
		s.t.Errorf("%s: %v", name, err)
	}
}

func (s *soaking) connections(ctx context.Context) (n int) {
	_ = s.admin.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, soakApp).Scan(&n)
	return n
}
