package main

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5/pgxpool"
)

// big is a file that takes many batches.
func big(t *testing.T, records int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("id,name\n")
	for i := range records {
		b.WriteString(strconv.Itoa(i))
		b.WriteString(",some text to make it longer\n")
	}
	return write(t, "big.csv", b.String())
}

const bigRecords = 150_000

// running is a program that was started.
type running struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{Cmd: program(t, args...)}
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait is the exit code and what was printed.
func (r *running) wait() result {
	_ = r.Cmd.Wait() // the exit code says it
	return result{r.stdout.String(), r.stderr.String(), r.ProcessState.ExitCode()}
}

// untilRows returns when so many rows are committed.
func untilRows(t *testing.T, pool *pgxpool.Pool, table string, rows int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for count(t, pool, table) < rows {
		if time.Now().After(deadline) {
			t.Fatalf("%s has no %d rows after 30 s", table, rows)
		}
	}
}

// lapse ends the lease of whoever imports, as a long pause would.
func lapse(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `UPDATE gatepost.leases SET
		renewed_at = clock_timestamp() - interval '2 s', expires_at = clock_timestamp() - interval '1 s'`); err != nil {
		t.Fatal(err)
	}
}

// exact fails unless each line of the file is in the table once.
func exact(t *testing.T, pool *pgxpool.Pool, records int) {
	t.Helper()
	got := text(t, pool, `SELECT count(*) || ' rows, ' || count(DISTINCT id) || ' of them distinct' FROM big`)
	if want := strconv.Itoa(records) + " rows, " + strconv.Itoa(records) + " of them distinct"; got != want {
		t.Errorf("table has %s, want %s", got, want)
	}
}

func TestImport_KilledInTheMiddleAndAgainIsExact(t *testing.T) {
	t.Parallel()
	url, file := pgtest.Database(t), big(t, bigRecords)
	pool := pgtest.Connect(t, url)
	first := start(t, "import", file, "--database-url", url)
	untilRows(t, pool, "big", 2*batchSize)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := first.wait(); r.code == 0 {
		t.Fatalf("it was through before it was killed: %s", r.stdout)
	}
	lapse(t, pool) // what else takes up to 10 s
	committed := int64(count(t, pool, "big"))
	if committed >= bigRecords {
		t.Fatal("it was through before it was killed")
	}
	wantTally(t, "again", importJSON(t, url, file),
		tally{Records: bigRecords, Inserted: bigRecords - committed, Existed: committed})
	exact(t, pool, bigRecords)
}

func TestImport_SecondProcessSaysWhoHoldsTheLease(t *testing.T) {
	t.Parallel()
	url, file := pgtest.Database(t), big(t, bigRecords)
	pool := pgtest.Connect(t, url)
	first := start(t, "import", file, "--database-url", url)
	untilRows(t, pool, "big", 1)
	holder := text(t, pool, `SELECT holder FROM gatepost.leases`)

	oneLineWith(t, runProgram(t, "import", file, "--database-url", url, "--wait", "0"), 75, "is being imported by "+holder, "nothing was done")
	waiting := runProgram(t, "import", file, "--database-url", url, "--wait", "1m")
	if waiting.code != 0 || !strings.Contains(waiting.stderr, "is being imported by "+holder) {
		t.Errorf("exit code %d, %q; want it to wait and say for whom", waiting.code, waiting.stderr)
	}
	if r := first.wait(); r.code != 0 {
		t.Errorf("the first failed: %s", r.stderr)
	}
	exact(t, pool, bigRecords)
}

func TestImport_NothingIsDoubledWhenBothReallyRun(t *testing.T) {
	t.Parallel()
	url, file := pgtest.Database(t), big(t, bigRecords)
	pool := pgtest.Connect(t, url)
	first := start(t, "import", file, "--database-url", url)
	untilRows(t, pool, "big", 1)
	lapse(t, pool)
	second := runProgram(t, "import", file, "--database-url", url, "--wait", "0")
	if second.code != 0 {
		t.Fatalf("the second could not take the lapsed lease: %s", second.stderr)
	}
	// The first is told of its loss by its next heartbeat, or was faster.
	if r := first.wait(); r.code != 0 && r.code != 76 {
		t.Errorf("the first ended with %d: %s", r.code, r.stderr)
	}
	exact(t, pool, bigRecords)
}

// Eight files for one table that isn't there.
func TestImport_ManyFilesCreateOneTable(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	var all []*running
	for i := range 8 {
		all = append(all, start(t, "import", write(t, "part.csv", "id\n"+strconv.Itoa(i)+"\n"), "--table", "parts", "--database-url", url))
	}
	for _, r := range all {
		if r := r.wait(); r.code != 0 {
			t.Errorf("exit code %d: %s", r.code, r.stderr)
		}
	}
	if n := count(t, pgtest.Connect(t, url), "parts"); n != 8 {
		t.Errorf("%d rows, want 8", n)
	}
}

func TestImport_InterruptedLeavesWholeBatchesAndFreesTheLease(t *testing.T) {
	t.Parallel()
	url, file := pgtest.Database(t), big(t, bigRecords)
	pool := pgtest.Connect(t, url)
	first := start(t, "import", file, "--database-url", url)
	untilRows(t, pool, "big", 1)
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r := first.wait()
	if n := count(t, pool, "big"); r.code != 1 || n%batchSize != 0 || n == bigRecords {
		t.Errorf("exit code %d with %d rows: %s", r.code, n, r.stderr)
	}
	if !strings.Contains(r.stderr, "start again") {
		t.Errorf("stderr %q doesn't say what to do", r.stderr)
	}
	if again := runProgram(t, "import", file, "--database-url", url, "--wait", "0"); again.code != 0 {
		t.Errorf("the lease is not free: %s", again.stderr)
	}
	exact(t, pool, bigRecords)
}
