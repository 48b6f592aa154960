package itest_test

import (
	"context"
	"net/url"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5"
)

func TestPgtemp_RunsInAContainer(t *testing.T) {
	t.Parallel()
	server, err := pgtemp.Start(t.Context(), &pgtemp.Options{Image: image(), Settings: map[string]string{"work_mem": "5MB"}})
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{"work_mem": "5MB", "fsync": "off", "server_version": server.Version()} {
		if got := show(t, server, setting); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", setting, got, want)
		}
	}
	port := portOf(t, server)
	if left := containersOn(t, port); len(left) != 1 {
		t.Errorf("containers with port %s: got %v, want one", port, left)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := containersOn(t, port); len(left) > 0 {
		t.Errorf("containers that outlived Stop: %v", left)
	}
}

func TestPgtemp_LeavesNoContainerWhenCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	// A label can't be asked for, so the settings tell this test's container.
	mark := "1234567kB"
	server, err := pgtemp.Start(ctx, &pgtemp.Options{Image: image(), Settings: map[string]string{"work_mem": mark}})
	if err == nil {
		_ = server.Stop()
		return // it was faster
	}
	if left := containers(t, "{{.Command}}"); strings.Contains(strings.Join(left, " "), mark) {
		t.Errorf("left running: %v", left)
	}
}

// show is the value of a setting.
func show(t *testing.T, server *pgtemp.Server, setting string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var value string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// portOf is where the server is published.
func portOf(t *testing.T, server *pgtemp.Server) string {
	t.Helper()
	u, err := url.Parse(server.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

// containersOn are those that publish a port.
func containersOn(t *testing.T, port string) []string {
	t.Helper()
	return slices.DeleteFunc(containers(t, "{{.Names}} {{.Ports}}"), func(line string) bool {
		return !strings.Contains(line, ":"+port+"->")
	})
}

// containers are those of pgtemp, running or not, one line each.
func containers(t *testing.T, format string) []string {
	t.Helper()
	cmd := osexec.Command("docker", "ps", "--all", "--no-trunc", "--filter", "label=gatepost.pgtemp", "--format", format)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
