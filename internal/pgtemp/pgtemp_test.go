package pgtemp_test

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5"
)

func TestStart_Serves(t *testing.T) {
	t.Parallel()
	server := start(t, &pgtemp.Options{Settings: map[string]string{"application_name": `it's a \ test`}})
	for _, test := range []struct{ database, ask, want string }{
		{"", "SELECT current_database()", "postgres"},
		{"template1", "SELECT current_database()", "template1"},
		{"", "SHOW fsync", "off"},
		{"", "SELECT reset_val FROM pg_settings WHERE name = 'application_name'", `it's a \ test`},
		{"", "SELECT split_part(current_setting('server_version'), ' ', 1)", server.Version()},
	} {
		if got := query(t, server.URL(test.database), test.ask); got != test.want {
			t.Errorf("%s in %q: got %q, want %q", test.ask, test.database, got, test.want)
		}
	}
	if want := "PostgreSQL " + server.Version() + " from "; !strings.HasPrefix(server.Describe(), want) {
		t.Errorf("Describe: got %q, want %q and where from", server.Describe(), want)
	}
	psql(t, server)
}

// psql checks that a URL works in libpq too, where psql is installed.
func psql(t *testing.T, server *pgtemp.Server) {
	t.Helper()
	if _, err := exec.LookPath("psql"); err != nil {
		return
	}
	out, err := exec.Command("psql", server.URL("template1"), "-XAtc", "SELECT current_database()").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "template1" {
		t.Errorf("psql: got %q, %v; want template1", got, err)
	}
}

func TestStart_ManyAtOnce(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	urls := make([]string, 2)
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

// run sends statements that return nothing.
func run(t *testing.T, url, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
}
