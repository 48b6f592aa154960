package pgtemp_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gatepost/gatepost/internal/pgtemp"
)

func TestStop_LeavesNothing(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	home := dataDirectory(t, server)
	pid := server.Pid()

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("signal to the server's process: got %v, want %v", err, syscall.ESRCH)
	}
	if _, err := os.Stat(filepath.Dir(home)); !os.IsNotExist(err) {
		t.Errorf("the server's directory: got %v, want not exist", err)
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

// dataDirectory asks the server where its data is.
func dataDirectory(t *testing.T, server *pgtemp.Server) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var dir string
	if err := conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
