package pgtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
)

func TestServer_IsAFailureWithTheRemedyOnce(t *testing.T) {
	t.Parallel()
	out, err := again(t, "^Test(Pool|Database|EmptyDatabase)_", "GATEPOST_TEST_DATABASE_URL=", "GATEPOST_PG_BIN=/nowhere")
	if err == nil {
		t.Error("tests without a server passed")
	}
	if got := strings.Count(out, "/nowhere/initdb"); got != 1 {
		t.Errorf("the reason was shown %d times, want once:\n%s", got, out)
	}
	if strings.Contains(out, "SKIP") {
		t.Errorf("a test without a server was skipped:\n%s", out)
	}
}

func TestServer_OfTheEnvironmentIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	server, err := pgtemp.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	out, err := again(t, "^Test(Pool|Database|EmptyDatabase)_", "GATEPOST_TEST_DATABASE_URL="+server.URL(""), "GATEPOST_PG_BIN=/nowhere")
	if err != nil {
		t.Errorf("tests with a server of the environment: %v\n%s", err, out)
	}
	pool := pgtest.Connect(t, server.URL(""))
	var left int
	err = pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'gatepost%'").Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("got %d databases left, %v; want none", left, err)
	}
}

func TestServer_OfTheEnvironmentIsAURL(t *testing.T) {
	t.Parallel()
	out, err := again(t, "^TestPool_", "GATEPOST_TEST_DATABASE_URL=host=/tmp password=secret")
	if err == nil || !strings.Contains(out, "GATEPOST_TEST_DATABASE_URL is not a postgres:// URL") || strings.Contains(out, "secret") {
		t.Errorf("got %v with the output\n%s\nwant a failure that names the variable and no password", err, out)
	}
}

// again runs some tests of this binary in a process with another environment.
func again(t *testing.T, run string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", run)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
