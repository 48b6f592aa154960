//go:build linux

package faults_test

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(envWorker); text != "" {
		os.Exit(beAWorker(text))
	}
	os.Exit(m.Run())
}

// Whatever happens to processes, connections and the server, what was promised holds.
//
//nolint:tparallel // one run at a time: each wants the whole machine
func TestFaults(t *testing.T) {
	t.Parallel()
	for i := range *seeds { //nolint:paralleltest // as above
		s := newScenario(*seed + uint64(i))
		t.Run(fmt.Sprintf("seed %d", s.seed), func(t *testing.T) { s.conduct(t) })
	}
}
