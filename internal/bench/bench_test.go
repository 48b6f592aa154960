package bench_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}

func config(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.Creator(t, url))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// quick is enough to see that a row can be measured.
func quick(rows ...string) bench.Options {
	return bench.Options{Rows: rows, Pairs: 2, Block: 8, Load: 500}
}

func TestRun_MeasuresEachRow(t *testing.T) {
	t.Parallel()
	for _, row := range bench.Rows() {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			report, err := bench.Run(t.Context(), config(t, pgtest.URL(t)), quick(row.Name))
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Results) != 1 || report.Results[0].Row != row.Name {
				t.Fatalf("got %+v, want the one row", report.Results)
			}
			got := report.Results[0]
			if compared := row.Against != ""; compared != (got.Ratio != nil) || !compared && len(got.Counts) == 0 {
				t.Errorf("got %+v, want a ratio where something is compared, else counts", got)
			}
			if q := got.Ratio; q != nil && (q.Least <= 0 || q.Median < q.Least || q.Most < q.Median || q.OursUS <= 0 || q.PlainUS <= 0) {
				t.Errorf("got the ratio %+v", *q)
			}
		})
	}
}

// A database of its own: what others do to leases is in the same statistics.
func TestRun_HoldsManyLeasesInOneStatementWhoseUpdatesAreHOT(t *testing.T) {
	t.Parallel()
	report, err := bench.Run(t.Context(), config(t, pgtest.Database(t)), quick("held-1000"))
	if err != nil {
		t.Fatal(err)
	}
	got := report.Results[0]
	if n := countOf(t, got, "statements"); n > 2 { // a busy machine tries some again
		t.Errorf("a heartbeat of 1,000 leases took %g statements, want 1", n)
	}
	if share := countOf(t, got, "% not HOT"); share > 5 {
		t.Errorf("%g %% of the updates are not HOT, want at most 5", share)
	}
}

func countOf(t *testing.T, r bench.Result, what string) float64 {
	t.Helper()
	for _, c := range r.Counts {
		if c.What == what {
			return c.Each
		}
	}
	t.Fatalf("%q was not counted: %+v", what, r.Counts)
	return 0
}

// The temporary server of tests is not durable, and the report says so.
func TestRun_SaysWhatMakesCommitsCheap(t *testing.T) {
	t.Parallel()
	report, err := bench.Run(t.Context(), config(t, pgtest.URL(t)), quick("replay"))
	if err != nil {
		t.Fatal(err)
	}
	if s := report.Server; s.Settings["fsync"] != "off" {
		t.Skip("the tests' server is durable")
	} else if s.Durable() || len(s.Weak) == 0 || s.Weak[0] != "fsync = off" || s.Version == "" {
		t.Errorf("got %+v of a server with fsync off", s)
	}
}

func TestRun_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]bool{"at the end": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			opts := quick("acquire", "handoff-100", "idem")
			opts.Progress = func(row string, pair, _ int) {
				if interrupt && row == "idem" && pair == 2 {
					cancel()
				}
			}
			_, err := bench.Run(ctx, config(t, url), opts)
			if interrupted := errors.Is(err, context.Canceled); interrupted != interrupt || !interrupt && err != nil {
				t.Errorf("Run: %v", err)
			}
			wantEmpty(t, pgtest.Connect(t, url))
		})
	}
}

// wantEmpty fails where something is left. What a client does behind its Close it has
// done by then.
func wantEmpty(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var left int
	err := pool.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'gatepost\_bench\_%')
		+ (SELECT count(*) FROM gatepost.leases)
		+ (SELECT count(*) FROM gatepost.waiters)
		+ (SELECT count(*) FROM gatepost.idempotency_keys)`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d schemas and rows are left, %v", left, err)
	}
}

func TestRun_RefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	if _, err := bench.Run(t.Context(), config(t, pgtest.URL(t)), quick("nothing")); !errors.Is(err, bench.ErrUnknownRow) {
		t.Errorf("an unknown row: %v", err)
	}
	if _, err := bench.Run(t.Context(), config(t, pgtest.EmptyDatabase(t)), quick("try")); !errors.Is(err, pglock.ErrNotMigrated) {
		t.Errorf("a database without the schema: %v", err)
	}
}

func TestRatio_IsTheMedianOfThePairs(t *testing.T) {
	t.Parallel()
	ms := func(values ...int) (ds []time.Duration) {
		for _, v := range values {
			ds = append(ds, time.Duration(v)*time.Millisecond)
		}
		return ds
	}
	// The machine was ten times slower during the last pair: for both.
	got := bench.RatioOf(ms(11, 20, 130), ms(10, 10, 100))
	if want := (bench.Ratio{Median: 1.3, Least: 1.1, Most: 2, OursUS: 20000, PlainUS: 10000}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := bench.RatioOf(ms(10, 20), ms(10, 10)); got.Median != 1.5 {
		t.Errorf("of two pairs got %+v, want their mean, 1.5", got)
	}
}

func TestMisses_NamesWhatExceedsItsBar(t *testing.T) {
	t.Parallel()
	r := bench.Result{
		Bar: 1.2, Ratio: &bench.Ratio{Median: 1.5},
		Counts: []bench.Count{{What: "statements", Each: 3}, {What: "xids", Each: 0.5, Bar: new(0.0)}},
	}
	if got := r.Misses(1); len(got) != 2 || got[0] != "ratio" || got[1] != "xids" {
		t.Errorf("got %q, want the ratio and the xids", got)
	}
	if got := r.Misses(1.3); len(got) != 1 || got[0] != "xids" {
		t.Errorf("got %q beyond 1.3 times the bar, want the xids alone: nothing is none", got)
	}
	r.Known = 1.6
	if got := r.Misses(1); len(got) != 1 || got[0] != "xids" {
		t.Errorf("got %q of a ratio that is known to be higher, want the xids alone", got)
	}
}
