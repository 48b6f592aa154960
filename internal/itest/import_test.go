package itest_test

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

func TestCopyOnce_TwiceIsOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, "CREATE TABLE copied (file text, line int, note text, PRIMARY KEY (file, line))")
	target := idem.Target{Table: pgx.Identifier{"copied"}, Columns: []string{"file", "line", "note"}, Key: []string{"file", "line"}}
	input := [][]any{{"a.csv", 1, "x"}, {"a.csv", 2, "y"}, {"a.csv", 2, "again"}}

	for run, want := range []idem.Counts{
		{Rows: 3, Inserted: 2, Duplicate: 1},
		{Rows: 3, Existed: 2, Duplicate: 1},
	} {
		var got idem.Counts
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			got, err = idem.CopyOnce(t.Context(), tx, target, pgx.CopyFromRows(input))
			return err
		})
		if err != nil || got != want {
			t.Errorf("run %d: got %+v, %v; want %+v", run+1, got, err, want)
		}
	}
}

// imported is what the example prints of an import.
type imported struct {
	Records, Inserted int64
	Existed           int64 `json:"already_there"`
}

func TestFileImport_TwiceIsOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	file := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(file, []byte("id,note\n1,one\n2,two\n3,three\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for run, want := range []imported{{Records: 3, Inserted: 3}, {Records: 3, Existed: 3}} {
		if got := fileImport(t, file, url); got != want {
			t.Errorf("run %d: got %+v, want %+v", run+1, got, want)
		}
	}
	if got := count(t, pgtest.Connect(t, url), "orders"); got != 3 {
		t.Errorf("got %d rows, want 3", got)
	}
}

// fileImport runs the example as a reader of the README would.
func fileImport(t *testing.T, file, url string) imported {
	t.Helper()
	cmd := osexec.Command("go", "run", "./examples/fileimport", "import", file, "--json", "--database-url", url)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got imported
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return got
}
