//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/job"
)

// envRun makes the test binary be a run, without a database, of what it says.
const envRun = "JOB_TEST_RUN"

func TestMain(m *testing.M) {
	job.Intercept()
	if plan := os.Getenv(envRun); plan != "" {
		playRun(plan)
	}
	if os.Getenv("GORACE") == "" { // the race detector sleeps for a second at each end
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	os.Exit(m.Run())
}

// plan is a run of a command under a lease that nobody renews.
type plan struct {
	Script           string
	TTL, Grace, Lead time.Duration
	LostAfter        time.Duration // when Done closes; 0: at the deadline
	NoLoss           bool          // it doesn't
}

// played is how it ended.
type played struct {
	job.Outcome
	Err   string
	Start string // the system's error, of a command that could not be started
	Took  time.Duration
}

func playRun(text string) {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	l := newLease(p)
	start := time.Now()
	outcome, err := job.Run(job.Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", "exec 2>/dev/null; " + p.Script}, Env: os.Environ(), Lease: l, Title: "a lease",
		Grace: p.Grace, Lead: p.Lead,
	})
	out := played{Outcome: outcome, Took: time.Since(start)}
	if err != nil {
		out.Err = err.Error()
	}
	if failed, ok := errors.AsType[*job.StartError](err); ok {
		out.Start = failed.Err.Error()
	}
	if err := json.NewEncoder(os.Stderr).Encode(out); err != nil { // standard output is the command's
		panic(err)
	}
	os.Exit(0)
}

// lease is one of a plan.
type lease struct {
	deadline time.Time
	done     chan struct{}
	mu       sync.Mutex
	err      error
}

func newLease(p plan) *lease {
	l := &lease{deadline: time.Now().Add(p.TTL - p.Grace - p.Lead), done: make(chan struct{})}
	after := time.Until(l.deadline)
	if p.LostAfter != 0 {
		after = p.LostAfter
	}
	if !p.NoLoss {
		time.AfterFunc(after, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.err = errors.New("lost")
			close(l.done)
		})
	}
	return l
}

func (l *lease) Deadline() time.Time   { return l.deadline }
func (l *lease) Done() <-chan struct{} { return l.done }
func (l *lease) Err() error            { l.mu.Lock(); defer l.mu.Unlock(); return l.err }

func play(t *testing.T, p plan) (out played, stdout string) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), envRun+"="+string(text))
	var output, report strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &report
	if err := cmd.Run(); err != nil {
		t.Fatal(err, report.String())
	}
	if err := json.Unmarshal([]byte(report.String()), &out); err != nil {
		t.Fatalf("%q: %v", report.String(), err)
	}
	return out, output.String()
}

func TestRun_TellsHowTheCommandEnded(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]job.Outcome{
		"exit 0":            {},
		"exit 9":            {Code: 9},
		"kill -USR1 $$":     {Code: 138},
		"sleep 60 & exit 2": {Code: 2, Left: 1},
		"trap '' TERM; sleep 60 & sleep 60 & exit 2": {Code: 2, Left: 2, Killed: true},
	} {
		out, _ := play(t, plan{Script: script, TTL: time.Minute, Grace: time.Second, Lead: time.Second})
		if out.Outcome != want || out.Err != "" {
			t.Errorf("%q: %+v, want %+v", script, out, want)
		}
	}
}

func TestRun_ALeaseThatEndsGetsTermAndThenKill(t *testing.T) {
	t.Parallel()
	short := plan{TTL: 3 * time.Second, Grace: 300 * time.Millisecond, Lead: 300 * time.Millisecond}
	long := plan{TTL: 32400 * time.Millisecond, Grace: 29700 * time.Millisecond, Lead: 300 * time.Millisecond}
	noLoss := long
	noLoss.NoLoss = true
	taken := plan{TTL: time.Hour, Grace: time.Minute, LostAfter: 2 * time.Second}
	for _, c := range []struct {
		name, script string
		plan         plan
		want         job.Outcome
		least        time.Duration
	}{
		{"one that obeys", "sleep 60", long, job.Outcome{Code: 143, Lost: true}, 2400 * time.Millisecond},
		{"one that doesn't", "trap '' TERM; sleep 60; sleep 60", short, job.Outcome{Code: 137, Lost: true, Killed: true}, 2500 * time.Millisecond},
		{"one that ends in order", "trap 'exit 0' TERM; while :; do sleep 0.01; done", taken, job.Outcome{Lost: true}, 2 * time.Second},
		{"one that is stopped", "trap 'exit 7' TERM; kill -STOP $$", taken, job.Outcome{Code: 7, Lost: true}, 2 * time.Second},
		{"by the monitor's clock", "sleep 60", noLoss, job.Outcome{Code: 143, Lost: true}, 2400 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.plan.Script = c.script
			out, _ := play(t, c.plan)
			if out.Outcome != c.want || out.Err != "" {
				t.Errorf("%+v, want %+v", out, c.want)
			}
			if out.Took < c.least || out.Took > c.least+20*time.Second {
				t.Errorf("it took %s, want %s", out.Took, c.least)
			}
		})
	}
}

// Nothing but the command has the pipes to the monitor, or it would not learn of the end.
func TestRun_TheCommandHasNoFilesOfTheRun(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system doesn't list a process's files")
	}
	const list = "ls /proc/$$/fd"
	inherited, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", list).Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, stdout := play(t, plan{Script: list, TTL: time.Minute}); stdout != string(inherited) {
		t.Errorf("the command has the files %q, of this process it has %q", stdout, inherited)
	}
}
