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
	r := gatepost(t, pgtest.URL(t), "bench", "replay", "try", "--pairs", "3", "--block", "8")
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
	r := gatepost(t, pgtest.URL(t), "bench", "fenced", "--json", "--pairs", "3", "--block", "8")
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
	url := pgtest.URL(t)
	args := []string{"bench", "replay", "--pairs", "1", "--block", "8", "--fail-above"}
	want(t, gatepost(t, url, append(args, "0.001")...), 1, "more than 0.001 times the bar: replay (ratio)")
	want(t, gatepost(t, url, append(args, "1000000")...), 0, "replay")
}

func TestBench_BadUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	want(t, gatepost(t, url, "bench", "speed"), 2, `there is no row "speed"; the rows are acquire, try`)
	want(t, gatepost(t, url, "bench", "--pairs", "0"), 2, "--pairs must be at least 1")
	want(t, gatepost(t, pgtest.EmptyDatabase(t), "bench", "try"), 1, "run: gatepost migrate up")
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
