//go:build linux

package faults_test

import (
	"os"
	"path/filepath"
	"testing"
)

// steps are where the server's clock goes. It comes back after each of them.
var steps = []string{"+10m", "-10m"}

// stepSpecies is the fault of a server whose clock is stepped for a while.
var stepSpecies = species{"clock step", 6, true, 0.5, 1.5, (*conductor).step}

// fakeClock is the environment of a server whose clock follows a file, and the file. It
// skips the test where there is no libfaketime.
func fakeClock(t *testing.T) (env []string, file string) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		t.Skip("the server's clock can't be stepped: libfaketime is not installed")
	}
	//nolint:usetesting // the server's user has to read it, and can't enter t.TempDir
	dir, err := os.MkdirTemp("", "gatepost-clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file = filepath.Join(dir, "offset")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	setClock(t, file, "+0")
	return []string{
		"LD_PRELOAD=" + found[0], "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}, file
}

// setClock steps the clock: by a rename, since the file is read at any moment.
func setClock(t *testing.T, file, offset string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(offset+"\n"), 0o644); err != nil {
		t.Error(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Error(err)
	}
}

func (c *conductor) step(f fault) {
	setClock(c.t, c.clock, steps[f.Dice%2])
	c.wait(f)
	setClock(c.t, c.clock, "+0")
}

// The server's clock is stepped by ten minutes, either way: leases end early or late,
// and no fence lets anybody through.
func TestFaults_SteppedClock(t *testing.T) {
	t.Parallel()
	needsTime(t)
	s := newScenario(*seed + 1)
	s.env, s.clock = fakeClock(t)
	s.species = append(without("crash", "prepared"), stepSpecies)
	s.conduct(t)
}
