package pglock_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	osexec "os/exec"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5/pgxpool"
)

// puppet is a running puppet, as its test sees it.
type puppet struct {
	role
	cmd     *osexec.Cmd
	stdin   io.WriteCloser
	answers chan answer // closed when it has ended
}

// startPuppet starts a process that is killed when the test ends, and gives it a
// name and a table of its own where the role has none.
func startPuppet(t *testing.T, pool *pgxpool.Pool, r role) *puppet {
	t.Helper()
	r.URL, r.Name, r.Table = pgtest.URL(t), pgtest.Name(t), table(t, pool)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p := &puppet{role: r, cmd: osexec.Command(os.Args[0]), answers: make(chan answer, 100)}
	p.cmd.Env = append(os.Environ(), envPuppet+"="+string(text))
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.listen(stdout) // ends with the process
	t.Cleanup(func() {
		p.kill(t)
		for range p.answers {
		}
		_ = p.cmd.Wait() // it says "signal: killed"
	})
	return p
}

func (p *puppet) listen(stdout io.Reader) {
	defer close(p.answers)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) == nil {
			p.answers <- a
		}
	}
}

// tell gives a command and doesn't wait for what comes of it.
func (p *puppet) tell(t *testing.T, command string) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, command+"\n"); err != nil {
		t.Fatal(err)
	}
}

// ask gives a command and waits for its answer.
func (p *puppet) ask(t *testing.T, command string) answer {
	t.Helper()
	p.tell(t, command)
	return p.answer(t)
}

func (p *puppet) answer(t *testing.T) answer {
	t.Helper()
	select {
	case a, ok := <-p.answers:
		if !ok {
			t.Fatal("the puppet has ended")
		}
		return a
	case <-time.After(20 * time.Second):
		t.Fatal("the puppet doesn't answer")
	}
	return answer{}
}

// must gives a command that has to succeed.
func (p *puppet) must(t *testing.T, command string) answer {
	t.Helper()
	a := p.ask(t, command)
	if a.Err != "" {
		t.Fatalf("%s: %s", command, a.Err)
	}
	return a
}

// kill ends it as the system does when memory runs out; no deferred call runs.
func (p *puppet) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

// sessions counts its connections.
func (p *puppet) sessions(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return value[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND (state <> 'idle' OR NOT $2)`, p.Table, pgtest.Pooled())
}

// slack is what a takeover may take longer than it waits.
const slack = 250 * time.Millisecond

// clock is the database's.
func clock(t *testing.T, pool *pgxpool.Pool) time.Time {
	t.Helper()
	return value[time.Time](t, pool, `SELECT clock_timestamp()`)
}

// grantedBy fails if the name was granted later than that.
func grantedBy(t *testing.T, pool *pgxpool.Pool, name string, from time.Time, limit time.Duration) {
	t.Helper()
	took := row(t, pool, name).Acquired.Sub(from)
	if took > limit {
		t.Errorf("the takeover took %s, want %s at most", took, limit)
	}
	t.Logf("takeover after %s of %s", took, limit)
}
