package pgtemp_test

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gatepost/gatepost/internal/pgtemp"
)

func TestStart_Serves(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	if got := query(t, server.URL(""), "SELECT current_database()"); got != "postgres" {
		t.Errorf("URL(\"\"): got the database %q, want postgres", got)
	}
	if got := query(t, server.URL("template1"), "SELECT current_database()"); got != "template1" {
		t.Errorf("URL(template1): got the database %q", got)
	}
	if got := query(t, server.URL(""), "SHOW server_version"); !strings.HasPrefix(got, server.Version()) || server.Version() == "" {
		t.Errorf("Version: got %q, want the beginning of %q", server.Version(), got)
	}
	if want := "PostgreSQL " + server.Version() + " from "; !strings.HasPrefix(server.Describe(), want) {
		t.Errorf("Describe: got %q, want %q and where from", server.Describe(), want)
	}
}

func TestURL_WorksInPsql(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("psql is not installed")
	}
	out, err := exec.Command("psql", start(t, nil).URL("template1"), "-XAtc", "SELECT current_database()").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "template1" {
		t.Errorf("got %q, %v; want template1", got, err)
	}
}

func TestStart_TakesSettings(t *testing.T) {
	t.Parallel()
	server := start(t, &pgtemp.Options{Settings: map[string]string{"work_mem": "5MB", "application_name": `it's a \ test`}})
	if got := query(t, server.URL(""), "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem: got %q, want 5MB", got)
	}
	if got, want := query(t, server.URL(""), "SHOW application_name"), `it's a \ test`; got != want {
		t.Errorf("application_name: got %q, want %q", got, want)
	}
}

func TestStart_IsDurableOnDemand(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]*pgtemp.Options{"off": nil, "on": {Durable: true}} {
		if got := query(t, start(t, opts).URL(""), "SHOW fsync"); got != want {
			t.Errorf("fsync with %+v: got %s, want %s", opts, got, want)
		}
	}
}

func TestStart_ManyAtOnce(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	urls := make([]string, 3)
	for i := range urls {
		wg.Go(func() {
			server, err := pgtemp.Start(t.Context(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			urls[i] = server.URL("")
			t.Cleanup(func() { _ = server.Stop() })
		})
	}
	other := startHelper(t, order{})
	wg.Wait()
	seen := map[string]bool{}
	for _, url := range append(urls, other.URL) {
		seen[query(t, url, "SELECT system_identifier::text FROM pg_control_system()")] = true
	}
	if len(seen) != len(urls)+1 {
		t.Errorf("got %d different servers, want %d", len(seen), len(urls)+1)
	}
}

func TestStart_TakesACancelledContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pgtemp.Start(ctx, nil); err == nil {
		t.Error("got no error from a context that has ended")
	}
}

// start returns a server that the end of the test stops.
func start(t *testing.T, opts *pgtemp.Options) *pgtemp.Server {
	t.Helper()
	server, err := pgtemp.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// query is the one value of a statement.
func query(t *testing.T, url, statement string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var value string
	if err := conn.QueryRow(t.Context(), statement).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
