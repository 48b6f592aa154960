package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// servers of these tests: one as it should be, and one as it should not. They are the
// tests' own also where a server is given, since its settings matter.
var (
	healthy = &server{settings: map[string]string{"fsync": "on", "full_page_writes": "on"}}
	faulty  = &server{settings: map[string]string{
		"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_prepared_transactions": "20",
	}}
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return errors.Join(healthy.stop(), faulty.stop()) })
}

// server is one that the first test that asks starts, with a migrated template.
type server struct {
	settings map[string]string

	once   sync.Once
	err    error
	temp   *pgtemp.Server
	pooler *pgtemp.Pooler // what doctor looks through; nil: nothing
	made   atomic.Int64
}

// poolers are those of all servers, by the directory of the server's socket.
var poolers sync.Map

func (s *server) start(tb testing.TB) *pgtemp.Server {
	tb.Helper()
	s.once.Do(func() { s.err = s.open(context.Background()) }) // it outlives the test
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.temp
}

func (s *server) open(ctx context.Context) (err error) {
	settings := maps.Clone(s.settings)
	if pgtest.Pooled() {
		settings["max_connections"] = "600" // a pooler keeps them for a while
	}
	if s.temp, err = pgtemp.Start(ctx, &pgtemp.Options{Settings: settings}); err != nil {
		return err
	}
	if pgtest.Pooled() {
		if s.pooler, err = pgtemp.StartPooler(ctx, s.temp.URL(""), &pgtemp.PoolerOptions{Ready: 2}); err != nil {
			return err
		}
		at, err := pgx.ParseConfig(s.temp.URL(""))
		if err != nil {
			return err
		}
		poolers.Store(at.Host, s.pooler)
	}
	if err := execute(ctx, s.temp.URL(""), "CREATE DATABASE migrated TEMPLATE template0"); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.temp.URL("migrated"))
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool)
}

func (s *server) stop() error {
	if s.temp == nil {
		return nil
	}
	var err error
	if s.pooler != nil {
		err = s.pooler.Stop()
	}
	return errors.Join(err, s.temp.Stop())
}

// database is the URL of a migrated database of the test's own.
func (s *server) database(tb testing.TB) string {
	tb.Helper()
	return s.copyOf(tb, "migrated")
}

func (s *server) copyOf(tb testing.TB, template string) string {
	tb.Helper()
	temp := s.start(tb)
	name := fmt.Sprintf("test%d", s.made.Add(1))
	run(tb, temp.URL(""), "CREATE DATABASE "+name+" TEMPLATE "+template)
	return temp.URL(name)
}

// run executes statements in a database, each by itself.
func run(tb testing.TB, url string, statements ...string) {
	tb.Helper()
	if err := execute(tb.Context(), url, statements...); err != nil {
		tb.Fatal(err)
	}
}

func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// connect is a connection for the length of the test.
func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// patient options don't fail on a busy machine.
func patient() doctor.Options { return doctor.Options{Timeout: time.Minute} }

func examine(tb testing.TB, url string, opts doctor.Options) *doctor.Report {
	tb.Helper()
	cfg, pooled := through(tb, url)
	report, err := doctor.Examine(tb.Context(), cfg, opts)
	if err != nil {
		tb.Fatal(err)
	}
	if pooled {
		last := &report.Results[len(report.Results)-1]
		if last.Check != "pooler" || len(last.Findings) != 1 || last.Findings[0].Severity != doctor.Note {
			tb.Errorf("of the pooler it says %+v", *last)
		}
		last.Findings = nil
	}
	return report
}

// through is the configuration of a URL, through the pooler if there is one that takes it.
func through(tb testing.TB, url string) (cfg *pgx.ConnConfig, pooled bool) {
	tb.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	pooler, is := poolers.Load(cfg.Host)
	if _, settings := cfg.RuntimeParams["options"]; !is || settings {
		return cfg, false
	}
	user := cfg.User
	if cfg, err = pgx.ParseConfig(pooler.(*pgtemp.Pooler).URL(cfg.Database)); err != nil {
		tb.Fatal(err)
	}
	cfg.User = user
	return cfg, true
}

// found lists a report's findings as "check severity object".
func found(r *doctor.Report) []string {
	list := []string{}
	for _, result := range r.Results {
		for _, f := range result.Findings {
			list = append(list, fmt.Sprintf("%s %s %s", result.Check, f.Severity, f.Object))
		}
		if result.Failed != "" {
			list = append(list, result.Check+" failed "+result.Failed)
		}
	}
	return list
}

// result is that of one check.
func result(tb testing.TB, r *doctor.Report, check string) doctor.Result {
	tb.Helper()
	for _, result := range r.Results {
		if result.Check == check {
			return result
		}
	}
	tb.Fatalf("there is no check %s", check)
	return doctor.Result{}
}

// until waits for a state.
func until(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not in a minute", what)
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // polls a state
	}
}
