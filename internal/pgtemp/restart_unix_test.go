//go:build unix

package pgtemp_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
)

func TestRestart_KeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	run(t, server.URL(""), "CREATE TABLE kept AS SELECT 'kept' AS note")
	for _, test := range []struct {
		how      pgtemp.Shutdown
		unlogged string // how many of its rows are left
	}{{pgtemp.Fast, "1"}, {pgtemp.Immediate, "0"}} {
		run(t, server.URL(""), "DROP TABLE IF EXISTS hint; CREATE UNLOGGED TABLE hint AS SELECT 1 AS n")
		pid := server.Pid()
		if err := server.Restart(t.Context(), test.how); err != nil {
			t.Fatal(err)
		}
		if server.Pid() == pid {
			t.Errorf("the process is still %d", pid)
		}
		if got := query(t, server.URL(""), "SELECT note FROM kept"); got != "kept" {
			t.Errorf("got %q, want the row", got)
		}
		if got := query(t, server.URL(""), "SELECT count(*)::text FROM hint"); got != test.unlogged {
			t.Errorf("%d: %s rows of an unlogged table, want %s", test.how, got, test.unlogged)
		}
	}
}

func TestRestart_BesideAnotherWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	var restarts sync.WaitGroup
	for range 3 {
		restarts.Go(func() {
			if err := server.Restart(context.WithoutCancel(t.Context()), pgtemp.Immediate); err != nil {
				t.Error(err)
			}
		})
	}
	restarts.Wait()
	if got := query(t, server.URL(""), "SELECT 'it serves'"); got != "it serves" {
		t.Errorf("got %q", got)
	}
}

func TestRestart_BesideAStopLeavesNothing(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	home := homeOf(t, server.URL(""))
	var restarts sync.WaitGroup
	for range 3 {
		restarts.Go(func() { _ = server.Restart(context.WithoutCancel(t.Context()), pgtemp.Immediate) })
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	restarts.Wait()
	if left := processesIn(home); len(left) > 0 || exists(home) {
		t.Errorf("left running: %v; left on the disk: %t", left, exists(home))
	}
	if err := server.Restart(t.Context(), pgtemp.Fast); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("after a Stop: %v, want an error", err)
	}
}
