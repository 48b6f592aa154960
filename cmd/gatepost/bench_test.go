package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/pgtest"
)

func TestBench_PrintsATable(t *testing.T) {
	t.Parallel()
	r := gatepost(t, pgtest.Creator(t, pgtest.URL(t)), "bench", "replay", "try", "--pairs", "3", "--block", "8")
	for _, part := range []string{
		"3 pairs, 8 operations a block", "synchronous_commit on",
		"ROW", "BAR  RATIO  SPREAD", "replay of a stored reply", " to ",
		"ROUND TRIPS", "1 / 1",
	} {
		want(t, r, 0, part)
	}
	if strings.Contains(r.stdout, "fsync off") != strings.Contains(r.stdout, "NOT DURABLE: fsync = off") {
		t.Errorf("a server that is not durable, and no warning, or the other way round:\n%s", r.stdout)
	}
}

func TestBench_JSON(t *testing.T) {
	t.Parallel()
	r := gatepost(t, pgtest.Creator(t, pgtest.URL(t)), "bench", "fenced", "--json", "--pairs", "3", "--block", "8")
	want(t, r, 0, "")
	var report bench.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v in %q", err, r.stdout)
	}
	if len(report.Results) != 1 || report.Results[0].Ratio == nil || report.Results[0].Ratio.Median <= 0 || report.Server.Settings["fsync"] == "" {
		t.Errorf("got %+v", report)
	}
}

func TestBench_FailAboveIsForCI(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.URL(t))
	args := []string{"bench", "replay", "--pairs", "1", "--block", "8", "--fail-above"}
	r := gatepost(t, url, append(args, "0.001")...)
	if r.code != 1 || !strings.Contains(r.stderr, "more than 0.001 times the bar: replay (ratio)") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if n := strings.Count(r.stderr, "Measuring again: replay\n"); n != 2 {
		t.Errorf("it was measured %d times more, want 2: %s", n, r.stderr)
	}
	want(t, gatepost(t, url, append(args, "1000000")...), 0, "replay")
}

func TestBench_TheCheaperOfTwoCounts(t *testing.T) {
	t.Parallel()
	ratio := func(median float64, statements float64) bench.Result {
		return bench.Result{Bar: 1, Ratio: &bench.Ratio{Median: median}, Counts: []bench.Count{{What: "statements", Each: statements, Bar: new(2.0)}}}
	}
	for _, c := range []struct{ was, is, want bench.Result }{
		{ratio(3, 2), ratio(2, 2), ratio(2, 2)},
		{ratio(2, 2), ratio(3, 2), ratio(2, 2)},
		{ratio(3, 5), ratio(4, 2), ratio(4, 2)}, // misses less
		{ratio(1, 5), ratio(3, 2), ratio(1, 5)}, // as many: the ratio
	} {
		if got := cheaper(c.was, c.is, 1.5); got.Ratio.Median != c.want.Ratio.Median || got.Counts[0].Each != c.want.Counts[0].Each {
			t.Errorf("of %v and %v it is %v", *c.was.Ratio, *c.is.Ratio, *got.Ratio)
		}
	}
}

func TestBench_BadUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	want(t, gatepost(t, url, "bench", "speed"), 2, `there is no row "speed"; the rows are acquire, try`)
	want(t, gatepost(t, url, "bench", "--pairs", "0"), 2, "--pairs must be at least 1")
	want(t, gatepost(t, url, "bench", "--scale", "2"), 2, "--scale is a part of the full size, above 0 and up to 1")
	want(t, gatepost(t, url, "bench", "try", "--scale", "1"), 2, "name no rows")
	want(t, gatepost(t, url, "bench", "--floors", "--scale", "0.01"), 2, "run one, then the other")
	for _, measure := range []string{"--floors", "--scale=0.01"} {
		want(t, gatepost(t, url, "bench", measure, "--fail-above", "2"), 2, "leave it out, or them")
	}
	want(t, gatepost(t, pgtest.EmptyDatabase(t), "bench", "try"), 1, "run: gatepost migrate up")
}

// Where the server is on another machine, its processor time is not known; nor is the
// client's on some systems.
func TestBench_SaysNoProcessorTimeThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to bench.Sample
		want     string
	}{
		{bench.Sample{PerSecond: 1, ServerUS: 80, ClientUS: 40}, bench.Sample{PerSecond: 1, ServerUS: 90, ClientUS: 50}, "80 µs, 40 µs, then 90 µs, 50 µs"},
		{bench.Sample{PerSecond: 1, ClientUS: 40}, bench.Sample{PerSecond: 1, ClientUS: 50}, "?, 40 µs, then ?, 50 µs"},
		{bench.Sample{PerSecond: 1}, bench.Sample{PerSecond: 1}, ""},
	} {
		row := scaleTable([]bench.Growth{{From: c.from, To: c.to}}).Rows[0]
		if got := row[len(row)-1].Text; got != c.want {
			t.Errorf("%+v and %+v are %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

func TestBench_HelpListsTheRows(t *testing.T) {
	t.Parallel()
	r := gatepost(t, "", "bench", "--help")
	for _, row := range bench.Rows() {
		want(t, r, 0, "  "+row.Name+" ")
	}
}

// The commits of the temporary server are those of a server that keeps its data.
func TestBench_TemporaryServerIsDurable(t *testing.T) {
	t.Parallel()
	r := gatepost(t, "", "bench", "try", "--temporary", "--json")
	var report bench.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); r.code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", r.code, err, r.stderr)
	}
	s := report.Server
	if s.Source == "" || !s.Durable() || s.Settings["fsync"] != "on" || s.Settings["synchronous_commit"] != "on" || s.Settings["full_page_writes"] != "on" {
		t.Errorf("the temporary server is %+v", s)
	}
}
