package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/job"
	"github.com/gatepost/gatepost/pglock"
)

// Exit codes that shells use for a command that can't be run, and can't be found.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// byeTimeout bounds what is asked of the database after the command's end, and
// lostTimeout where it may be the one that lost the lease.
const (
	byeTimeout  = 3 * time.Second
	lostTimeout = time.Second
)

// run runs a command under a lease. Its error is a cli.CodeError with the exit code of
// the command, or what kept that from running, or from running in peace.
func (o *runOptions) run(ctx context.Context, conn *connection, name string, command []string) error {
	if err := job.Supported(); err != nil {
		return err
	}
	path, err := exec.LookPath(command[0]) // before others wait for a command that isn't there
	if err != nil {
		return notStarted(err)
	}
	ctx = context.WithoutCancel(ctx) // signals are handled here
	patient, interrupted := untilSignal(ctx)
	renewed := make(renewals, 1)
	client, lease, err := o.acquire(patient, conn, name, renewed)

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, job.Signals()...) // before the others are given up: none gets lost
	defer signal.Stop(signals)
	sig := interrupted()
	if client != nil {
		defer closeClient(ctx, client) // releases what is held
	}
	switch {
	case sig != nil:
		return cli.CodeError(job.SignalCode(sig))
	case err != nil:
		return err
	}
	return underLease(ctx, lease, job.Command{
		Path: path, Args: command, Lease: lease, Renewed: renewed, Signals: signals, Grace: o.grace, Lead: o.lead(),
	})
}

// acquire opens the database and takes the lease, or waits for it.
func (o *runOptions) acquire(ctx context.Context, conn *connection, name string, renewed renewals) (*pglock.Client, *pglock.Lease, error) {
	pool, err := conn.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Trust ends early enough for SIGTERM, the grace, and SIGKILL.
	client, err := pglock.New(pool, pglock.Config{
		Holder: o.holder, TTL: o.ttl, SafetyMargin: o.grace + o.lead(), Tracer: renewed,
	})
	if err != nil {
		return nil, nil, cli.UsageError{Err: err}
	}
	opts := &pglock.AcquireOptions{Wait: o.wait}
	if o.noWait {
		opts.Wait = pglock.NoWait
	}
	lease, err := client.Acquire(ctx, name, opts)
	if held, ok := errors.AsType[*pglock.HeldError](err); ok {
		err = &heldError{held: held, waited: o.wait, err: err}
	}
	return client, lease, cli.WithSchema(ctx, pool, err)
}

// heldError says that another has the lease, and what a person may do.
type heldError struct {
	held   *pglock.HeldError
	waited time.Duration
	err    error
}

func (e *heldError) Error() string {
	how := "to wait for it, leave --no-wait out"
	if e.waited > 0 {
		how = "waited " + cli.Duration(e.waited)
	}
	text := fmt.Sprintf("%s; %s; all about it: gatepost show %s", cli.ExplainHeld(e.held), how, cli.ShellWords(e.held.Name))
	if e.held.Holder != "" {
		text += fmt.Sprintf("; if its holder hangs: gatepost release %s --token %d", cli.ShellWords(e.held.Name), e.held.Token)
	}
	return text
}

// Unwrap returns the error of pglock, for the exit code.
func (e *heldError) Unwrap() error { return e.err }

// closeClient doesn't wait for a database that doesn't answer: what is left lapses, and
// the connections end with the process.
func closeClient(ctx context.Context, client *pglock.Client) {
	ctx, cancel := context.WithTimeout(ctx, byeTimeout)
	defer cancel()
	_ = client.Close(ctx)
}

// untilSignal is a context that ends with the first signal that ends programs. stop has to
// be called; it returns that signal, or nil.
func untilSignal(ctx context.Context) (_ context.Context, stop func() os.Signal) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, job.EndingSignals()...)
	came := make(chan os.Signal, 1)
	go func() { // ends with stop
		sig := <-signals
		cancel()
		came <- sig
	}()
	return ctx, func() os.Signal {
		signal.Stop(signals)
		close(signals)
		return <-came
	}
}

// underLease runs the command, and releases the lease after it.
func underLease(ctx context.Context, lease *pglock.Lease, command job.Command) error {
	command.Env = append(
		os.Environ(),
		"GATEPOST_LEASE="+lease.Name(), "GATEPOST_TOKEN="+tokenText(lease.Token()), "GATEPOST_SEQUENCER="+lease.Sequencer().String(),
	)
	command.Title = titleOf(lease)
	command.Stuck = func(pids []int) {
		note("processes %v were killed and don't end; %s is not released before they do", pids, command.Title)
	}
	outcome, err := job.Run(command)
	reason := lease.Err()
	released := giveBack(ctx, lease, outcome.Lost)
	if errors.Is(released, pglock.ErrSuperseded) {
		reason = pglock.ErrSuperseded // perhaps learnt only now
	}
	switch {
	case outcome.Lost || errors.Is(reason, pglock.ErrSuperseded):
		return &lostError{lease: command.Title, reason: reason, outcome: outcome}
	case released != nil && !errors.Is(released, pglock.ErrLost):
		note("%s could not be released, and lapses by itself: %s", command.Title, cli.Explain(released))
	case outcome.Left > 0:
		note("the command left %s behind, ended before %s was released", processes(outcome.Left), command.Title)
	}
	return codeOf(outcome, err)
}

// giveBack frees the name, also after a loss if it is ours still: others wait for it.
func giveBack(ctx context.Context, lease *pglock.Lease, lost bool) error {
	timeout := byeTimeout
	if lost {
		timeout = lostTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return lease.Release(ctx)
}

func processes(n int) string {
	if n == 1 {
		return "a process"
	}
	return fmt.Sprintf("%d processes", n)
}

func codeOf(outcome job.Outcome, err error) error {
	if _, ok := errors.AsType[*job.StartError](err); ok {
		return notStarted(err)
	}
	if err == nil && outcome.Code != 0 {
		return cli.CodeError(outcome.Code)
	}
	return err
}

// titleOf is a lease for people.
func titleOf(lease *pglock.Lease) string {
	return fmt.Sprintf("lease %q (token %d)", lease.Name(), lease.Token())
}

// note tells something that is not the program's error.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "gatepost: "+format+"\n", args...)
}

// notStarted is an error with the exit code that shells use.
func notStarted(err error) error {
	note("%s", cli.Printable(cannotRun(err)))
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return cli.CodeError(exitNotFound)
	}
	return cli.CodeError(exitCannotRun)
}

// cannotRun says which command, and why; the words of package exec are for programmers.
func cannotRun(err error) string {
	if failed, ok := errors.AsType[*job.StartError](err); ok {
		return fmt.Sprintf("can't run %s: %s", failed.Path, failed.Err)
	}
	name, reason := "the command", err
	if failed, ok := errors.AsType[*exec.Error](err); ok {
		name, reason = failed.Name, failed.Err
	}
	if failed, ok := errors.AsType[*fs.PathError](reason); ok {
		reason = failed.Err
	}
	return fmt.Sprintf("can't run %s: %s", name, reason)
}

// lostError says that a lease was lost while its command ran.
type lostError struct {
	lease   string
	reason  error // nil when the monitor's clock was first
	outcome job.Outcome
}

func (e *lostError) Error() string {
	why := "it could not be renewed in time"
	if errors.Is(e.reason, pglock.ErrSuperseded) {
		why = "an operator released it, or another took it"
	}
	how := "was ended with SIGTERM"
	switch {
	case !e.outcome.Lost:
		how = "had ended by itself"
	case e.outcome.Killed:
		how += " and SIGKILL"
	}
	return fmt.Sprintf("%s was lost while the command ran: %s; the command %s", e.lease, why, how)
}

// Is matches pglock.ErrLost, for the exit code.
func (e *lostError) Is(target error) bool { return target == pglock.ErrLost }

// renewals tells a job of renewals, and a terminal that there is somebody to wait for.
type renewals chan struct{}

// TraceAcquireStart does nothing.
func (renewals) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return ctx
}

// TraceAcquireEnd does nothing.
func (renewals) TraceAcquireEnd(context.Context, pglock.TraceAcquireEndData) {}

// TraceRenewStart does nothing.
func (renewals) TraceRenewStart(ctx context.Context, _ pglock.TraceRenewStartData) context.Context {
	return ctx
}

// TraceRenewEnd tells the job, which looks at the lease.
func (r renewals) TraceRenewEnd(context.Context, pglock.TraceRenewEndData) {
	select {
	case r <- struct{}{}:
	default: // it has not looked yet, and will see this one too
	}
}

// TraceWaitStart tells people at a terminal why nothing happens.
func (renewals) TraceWaitStart(ctx context.Context, data pglock.TraceWaitStartData) context.Context {
	if cli.ScreenOf(os.Stderr).Terminal && data.Held != nil {
		note("waiting: %s", cli.Printable(cli.ExplainHeld(data.Held)))
	}
	return ctx
}

// TraceWaitEnd does nothing.
func (renewals) TraceWaitEnd(context.Context, pglock.TraceWaitEndData) {}
