package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

func TestDemo_ChargesEachPurchaseOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	r := runProgram(t, "demo", "--database-url", url)
	if r.code != 0 || r.stderr != "" || !strings.HasSuffix(r.stdout, "\nexactly once: yes\n") {
		t.Fatalf("exit code %d, %s; it printed\n%s", r.code, r.stderr, r.stdout)
	}
	for scene, want := range map[int]tally{ // at least
		1: {requests: 4, replays: 2},
		2: {requests: 40, conflicts: 1, replays: 30},
		3: {requests: 4, replays: 1, takeovers: 1},
		4: {requests: 3, replays: 2},
		5: {requests: 3, replays: 1, takeovers: 1},
		6: {requests: 5, replays: 1},
		7: {requests: 4, conflicts: 1, replays: 1, takeovers: 2},
	} {
		got := rowOf(t, r.stdout, scene)
		if got.orders != 1 || got.charges != 1 {
			t.Errorf("scene %d: %d orders and %d charges of one purchase", scene, got.orders, got.charges)
		}
		if got.requests < want.requests || got.conflicts < want.conflicts || got.replays < want.replays || got.takeovers < want.takeovers {
			t.Errorf("scene %d counted %+v, want at least %+v", scene, got, want)
		}
	}
	for what, want := range map[string]int{"SIGKILL to the server": 2, "SIGKILL to the client": 1, "SIGKILL to the provider": 1, ": 422 ": 2} {
		if got := strings.Count(r.stdout, what); got != want {
			t.Errorf("%q is there %d times, want %d:\n%s", what, got, want, r.stdout)
		}
	}
	for line := range strings.Lines(r.stdout) {
		if len(line) > 81 || strings.ContainsAny(line, "\x1b\t") {
			t.Errorf("a line is not plain text of 80 columns: %q", line)
		}
	}
	nothingLeft(t, url)
}

func TestDemo_ChargesMoreThanOnceWithoutIdempotency(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	r := runProgram(t, "demo", "--naive", "--database-url", url)
	if r.code != 1 || !strings.HasPrefix(r.stderr, "payments: not every purchase was charged exactly once: 7 purchases, ") ||
		!strings.HasSuffix(r.stdout, "\nexactly once: no\n") {
		t.Fatalf("exit code %d, %s; it printed\n%s", r.code, r.stderr, r.stdout)
	}
	for scene, want := range map[int]int{1: 2, 2: 20, 3: 2, 4: 2, 5: 2, 6: 3, 7: 2} {
		if got := rowOf(t, r.stdout, scene); got.charges != want || got.replays > 0 || got.takeovers > 0 {
			t.Errorf("scene %d counted %+v, want %d charges", scene, got, want)
		}
	}
	nothingLeft(t, url)
}

// What README.md shows has the scenes of the demo, and comes to what they come to.
func TestReadme_ShowsTheDemosTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range scenes {
		if !strings.Contains(string(text), fmt.Sprintf("\n%d. %s  ", i+1, s.title)) {
			t.Errorf("README.md does not show %q", s.title)
		}
		got := rowOf(t, string(text), i+1)
		if got.orders != 1 || got.charges != 1 || got.replays < s.least.replays || got.conflicts < s.least.conflicts || got.takeovers < s.least.takeovers {
			t.Errorf("README.md shows %+v of %q, want at least %+v", got, s.title, s.least)
		}
	}
}

func TestDemo_NeedsTheSchema(t *testing.T) {
	t.Parallel()
	r := runProgram(t, "demo", "--database-url", pgtest.EmptyDatabase(t))
	oneLineWith(t, r, 1, "gatepost migrate up")
}

func TestProgram_RefusesACommandLineItCantUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"demo", "--lease", "10ms"},
		{"demo", "--copies", "1"},
		{"demo", "now"},
		{"client", "--amount", "0"},
		{"provider", "here"},
		{"pay"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			oneLineWith(t, runProgram(t, args...), 2)
		})
	}
}

// rowOf reads a scene's row of the table.
func rowOf(t *testing.T, printed string, scene int) tally {
	t.Helper()
	row := regexp.MustCompile(`(?m)^` + strconv.Itoa(scene) + `\. [^\d\n]+ ([\d ]+)$`).FindStringSubmatch(printed)
	if row == nil {
		t.Fatalf("no row of scene %d in\n%s", scene, printed)
	}
	var n []int
	for field := range strings.FieldsSeq(row[1]) {
		number, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		n = append(n, number)
	}
	if len(n) != 6 {
		t.Fatalf("row %q", row[0])
	}
	return tally{requests: n[0], conflicts: n[1], replays: n[2], takeovers: n[3], orders: n[4], charges: n[5]}
}

// nothingLeft fails when a demo left a schema or a key.
func nothingLeft(t *testing.T, url string) {
	t.Helper()
	pool := pgtest.Connect(t, url)
	var schemas []string
	var keys int
	err := pool.QueryRow(t.Context(), `SELECT array_agg(nspname::text), (SELECT count(*) FROM gatepost.idempotency_keys)
		FROM pg_namespace WHERE nspname !~ '^pg_'`).Scan(&schemas, &keys)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(schemas)
	if keys != 0 || !slices.Equal(schemas, []string{"gatepost", "information_schema", "public"}) {
		t.Errorf("left are %d keys, and of the schemas %v", keys, schemas)
	}
}
