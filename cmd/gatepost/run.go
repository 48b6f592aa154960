package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runOptions are the flags of run.
type runOptions struct {
	ttl, wait, grace time.Duration
	noWait           bool
	holder           string
}

func runCommand(conn *connection) *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command while holding a lease, and end it if the lease is lost",
		Long: `Run a command while holding the lease NAME: wait for the lease, run the
command, renew the lease as long as it runs, and release it when the command and
all that it started have ended. The same name elsewhere waits; with --no-wait it
ends with exit code 75.

The command runs in a process group of its own, with the same input, output and
terminal, and finds in its environment:

  GATEPOST_LEASE      the name
  GATEPOST_TOKEN      the fencing token: it rises with each acquisition
  GATEPOST_SEQUENCER  for fenced transactions: pglock.ParseSequencer reads it

SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGWINCH are passed on to its group, SIGUSR1
and SIGUSR2 to itself. Ctrl-C, Ctrl-Z and fg work.

When the lease can't be renewed in time, all that the command started gets
SIGTERM, and SIGKILL --grace later. Both come before the database lets another
take the lease, also when the database doesn't answer, and when gatepost run is
stopped or killed: a small second process sees to that.

What passes it by: work that the command hands to a daemon (docker, systemd-run)
or to another host; processes of another user, which this one may not signal;
and the moments after "gatepost release", of which a run learns with its next
renewal, a third of the TTL later at most. Where that would do harm, write in
fenced transactions. Outside Linux, processes that leave the command's process
group are not found either.

What the command leaves behind when it ends is sent SIGTERM too, and SIGKILL
after --grace, before the lease is released: work stops first.

Exit codes: the command's own, or 128 + the signal that ended it; 75 when the
lease is held by another; 76 when it was lost while the command ran; 126 when
the command can't be run, 127 when it isn't there; 2 usage; 1 any other error.`,
		Example: `  gatepost run reports/daily -- ./report.sh --all
  gatepost run reports/daily --no-wait -- ./report.sh || [ $? -eq 75 ]
  gatepost run deploy --ttl 1m --wait 10m -- sh -c 'make "T=$GATEPOST_TOKEN"'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, command, err := splitRun(cmd, args)
			if errors.Is(err, pflag.ErrHelp) {
				return cmd.Help()
			}
			if err == nil {
				err = opts.check(cmd.Flags())
			}
			if err != nil {
				return cli.UsageError{Err: err}
			}
			return opts.run(cmd.Context(), conn, name, command)
		},
	}
	opts.register(cmd.Flags())
	return cmd
}

func (o *runOptions) register(flags *pflag.FlagSet) {
	flags.SetInterspersed(false) // what follows the command is the command's
	flags.DurationVar(&o.ttl, "ttl", 30*time.Second, "how long the lease lasts when it isn't renewed: 1s to 168h")
	flags.DurationVar(&o.wait, "wait", 0, "wait at most this long for the lease; 0 is --no-wait (default: as long as it takes)")
	flags.BoolVar(&o.noWait, "no-wait", false, "end at once, with exit code 75, when the lease is held")
	flags.DurationVar(&o.grace, "grace", 0, "the time between SIGTERM and SIGKILL, up to a third of the TTL (default: a fifth of the TTL)")
	flags.StringVar(&o.holder, "holder", "", "who it is that runs the command, for people (default: host/pid/random)")
}

// splitRun takes the command line apart: flags are ours before and behind the name, up to
// the command.
func splitRun(cmd *cobra.Command, args []string) (name string, command []string, err error) {
	if len(args) == 0 {
		return "", nil, cli.Misuse(cmd, "NAME and COMMAND are missing")
	}
	name = args[0]
	flags := cmd.Flags()
	flags.Init(cmd.Name(), pflag.ContinueOnError) // it forgets where the -- was in cobra's parsing
	if err := flags.Parse(args[1:]); err != nil {
		return "", nil, cli.FlagError(cmd, err)
	}
	if help, err := flags.GetBool("help"); err == nil && help {
		return "", nil, pflag.ErrHelp
	}
	command = flags.Args()
	switch {
	case len(command) == 0:
		return "", nil, cli.Misuse(cmd, "COMMAND is missing")
	case flags.ArgsLenAtDash() != 0:
		return "", nil, fmt.Errorf("the command comes behind --: gatepost run %s -- %s", cli.ShellWords(append([]string{name}, flagWords(flags)...)...), cli.ShellWords(command...))
	}
	return name, command, nil
}

// flagWords are the flags that were given, as they may be written.
func flagWords(flags *pflag.FlagSet) (words []string) {
	flags.Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "database-url": // it may hold a password
			words = append(words, "--"+f.Name, "...")
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name)
		default:
			words = append(words, "--"+f.Name, f.Value.String())
		}
	})
	return words
}

// mostTTL is pglock's limit.
const mostTTL = 168 * time.Hour

// check validates what pglock doesn't, and fills in what is not set.
func (o *runOptions) check(flags *pflag.FlagSet) error {
	switch {
	case o.ttl < time.Second:
		return fmt.Errorf("--ttl is %s; it must be at least 1s, for processes to be ended in time", o.ttl)
	case o.ttl > mostTTL:
		return fmt.Errorf("--ttl is %s; it must be at most 168h, for a holder that is gone to be noticed", o.ttl)
	case len(o.holder) > 255 || !recordable(o.holder):
		return errors.New("--holder must be at most 255 bytes of UTF-8 without NUL")
	case flags.Changed("wait") && o.noWait:
		return errors.New("--wait and --no-wait exclude each other")
	case o.wait < 0:
		return fmt.Errorf("--wait is %s; it can't be negative", o.wait)
	case flags.Changed("grace") && (o.grace < 0 || o.grace > o.ttl/3):
		return fmt.Errorf("--grace is %s; it must be at most a third of --ttl, %s, since the lease is not renewed any more then", o.grace, o.ttl/3)
	}
	o.noWait = o.noWait || (flags.Changed("wait") && o.wait == 0)
	if !flags.Changed("grace") {
		o.grace = o.ttl / 5
	}
	return nil
}

// lead is the time between SIGKILL and the moment from which another may have the lease:
// for the kernel, and for a machine that is busy.
func (o *runOptions) lead() time.Duration { return min(o.ttl/10, 2*time.Second) }
