package handbook_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// desk is where a reader of one page sits: a database, an empty directory, and
// gatepost on the PATH.
type desk struct{ url, bin, dir string }

// limit bounds one block: a command of the handbook waits for nobody.
const limit = 2 * time.Minute

func (d desk) run(t *testing.T, b block) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var err error
	var said string
	if b.language == "sql" {
		err = d.sql(ctx, t, b.text)
	} else {
		if _, missing := exec.LookPath("psql"); missing != nil && strings.Contains(b.text, "psql ") {
			t.Skip("no psql on this machine")
		}
		said, err = d.sh(ctx, b.text)
	}
	switch {
	case b.fails == "" && err != nil:
		t.Fatalf("%s\n%s%v", b.text, said, err)
	case b.fails != "" && (err == nil || !strings.Contains(said+err.Error(), b.fails)):
		t.Fatalf("%s\n%sgot %v, want a failure with %s", b.text, said, err, b.fails)
	}
}

// sh runs a block in a shell that knows the variables of the blocks before it.
func (d desk) sh(ctx context.Context, text string) (said string, err error) {
	const known = ".variables"
	text = "set -a; [ ! -e " + known + " ] || . ./" + known + "\n" + text + "\nexport -p > " + known
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "DATABASE_URL="+d.url, "PATH="+filepath.Dir(d.bin)+string(os.PathListSeparator)+os.Getenv("PATH"))
	// A file, not a pipe: Wait would wait for what a block leaves in the background.
	out, err := os.CreateTemp(d.dir, "out")
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	raw, readErr := os.ReadFile(out.Name())
	if err == nil {
		err = readErr
	}
	return string(bytes.TrimSpace(raw)) + "\n", err
}

// sql runs the statements of a block in one message: in one transaction, but for
// those between BEGIN and COMMIT.
func (d desk) sql(ctx context.Context, t *testing.T, text string) error {
	t.Helper()
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.PgConn().Exec(ctx, text).ReadAll()
	return err
}

// gatepost builds the command line, once for all pages.
func gatepost(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "gatepost")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/gatepost")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}
