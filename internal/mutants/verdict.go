package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// limit is how long the tests may take with a fault: one that makes them hang is killed
// by it.
const limit = 3 * time.Minute

// verdict is what the tests say of a mutant.
type verdict struct {
	tests []string // the red ones, without their subtests
	crash bool     // the binary failed, and no test of it: a leak, a crash, the limit
	ran   bool
	took  time.Duration // without compiling
}

func (v verdict) killed() bool { return len(v.tests) > 0 || v.crash }

func (v verdict) String() string {
	switch {
	case len(v.tests) > 0:
		return strings.Join(v.tests, ", ")
	case v.crash:
		return "the test binary: a leak, a crash, or no end"
	default:
		return "NOBODY"
	}
}

// event is a line of go test -json.
type event struct {
	Action, Test, Package, FailedBuild string
	Elapsed                            float64
}

// test runs a mutant's tests. An error means that they could not be run.
func (t *tree) test(ctx context.Context, m mutant) (v verdict, err error) {
	args := []string{"test", "-json", "-count=1", "-timeout=" + limit.String()}
	if m.run != "" {
		args = append(args, "-run="+m.run)
	}
	out, runErr := t.command(ctx, "go", slices.Concat(args, m.packages)...)
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	lines := json.NewDecoder(bytes.NewReader(out))
	for lines.More() {
		var e event
		if err := lines.Decode(&e); err != nil {
			return v, fmt.Errorf("go test: %w: %w", err, runErr)
		}
		if e.FailedBuild != "" {
			return v, fmt.Errorf("it doesn't compile: %w", runErr)
		}
		v.add(e)
	}
	if !v.killed() && runErr != nil {
		return v, runErr
	}
	if !v.ran {
		return v, errors.New("no test ran: look at the line \"run: \"")
	}
	return v, nil
}

func (v *verdict) add(e event) {
	v.ran = v.ran || e.Test != ""
	switch {
	case e.Action == "fail" && e.Test != "":
		if test, _, sub := strings.Cut(e.Test, "/"); !sub && !slices.Contains(v.tests, test) {
			v.tests = append(v.tests, test)
		}
	case e.Test == "" && (e.Action == "fail" || e.Action == "pass"):
		v.took += time.Duration(e.Elapsed * float64(time.Second))
		v.crash = v.crash || e.Action == "fail"
	}
}
