package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/spf13/cobra"
)

func releaseCommand(conn *connection) *cobra.Command {
	var r release
	cmd := &cobra.Command{
		Use:   "release NAME --token TOKEN",
		Short: "Take a lease from its holder, who may be hanging",
		Long: `Take a lease from its holder, so that the next one can have it at once.

TOKEN says which acquisition is meant, as gatepost show prints it: when another
holder has come since, nothing is changed. The row keeps the token, and says in
its data, until the next acquisition, who released it, when, why, and from whom.

The holder learns of it with its next renewal, a third of its TTL later at most,
or with its next fenced transaction, which is refused. What it does until then
without a fence may overlap with the next holder's work: where that matters, end
its program first.

A fenced transaction that is open already may still commit, and keeps the next
holder out until it ends; those are printed. --terminate ends their backends,
also one in a COPY whose client was stopped, which no timeout ends. It needs the
backend's role or pg_signal_backend, and a superuser for a superuser's.

Exit codes: 0 when the name is free now, also when it was before; 1 when the
token is not the current one, or a backend could not be ended; 2 usage.`,
		Example: `  gatepost release reports/daily --token 1764476000000001 --reason 'it hangs'
  gatepost release reports/daily --token 1764476000000001 --terminate`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Name = args[0]
			if err := r.check(); err != nil {
				return cli.UsageError{Err: err}
			}
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				done, err := r.do(ctx, db)
				if done.Name == "" {
					return err
				}
				return errors.Join(done.print(cmd, r.json), err)
			})
		},
	}
	cmd.Flags().Int64Var(&r.Token, "token", 0, "the token of the acquisition to end (required)")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&r.By, "by", "", "who does it, for the record (default: user@host)")
	cmd.Flags().BoolVar(&r.terminate, "terminate", false, "end the backends of its open fenced transactions")
	jsonFlag(cmd, &r.json)
	return cmd
}

// errStillOpen says that --terminate didn't get rid of a transaction.
var errStillOpen = errors.New("a transaction of the last holder is still open, and keeps the next one out")

// release is what is asked for.
type release struct {
	operator.Release
	terminate, json bool
}

// mostRecorded is how long a text may be that is left in the row.
const mostRecorded = 1000

func (r *release) check() error {
	if r.By == "" {
		r.By = whoAmI()
	}
	switch {
	case r.Token <= 0:
		return fmt.Errorf("which acquisition? Give --token, as printed by: gatepost show %s", cli.Printable(r.Name))
	case len(r.By) > mostRecorded || len(r.Reason) > mostRecorded:
		return fmt.Errorf("--by and --reason may have %d bytes each", mostRecorded)
	case !recordable(r.By) || !recordable(r.Reason):
		return errors.New("--by and --reason must be UTF-8 without NUL")
	}
	return nil
}

func recordable(s string) bool { return strings.ToValidUTF8(s, "") == s && !strings.ContainsRune(s, 0) }

// whoAmI is user@host, as far as this system knows.
func whoAmI() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return strings.ToValidUTF8(name+"@"+host, "?")
}

// do releases the lease and looks at what keeps the next holder out.
func (r release) do(ctx context.Context, db database) (done releasedLease, err error) {
	released, err := r.Do(ctx, db.pool)
	switch {
	case errors.Is(err, operator.ErrNotCurrent):
		if done, err = r.whyNot(ctx, db); err != nil {
			return releasedLease{}, err
		}
	case released.At.IsZero():
		return releasedLease{}, err
	default:
		done = releasedLease{Release: r.Release, Released: released, now: true}
	}
	rest, restErr := r.lockers(ctx, db, done.At)
	done.lockers = rest
	return done, errors.Join(err, restErr)
}

// whyNot tells what is the matter with a token: it is an error, unless the name is free.
func (r release) whyNot(ctx context.Context, db database) (releasedLease, error) {
	info, err := db.client.Get(ctx, r.Name)
	if err != nil {
		return releasedLease{}, err
	}
	l := lease{LeaseInfo: *info}
	switch {
	case l.Token == 0:
		return releasedLease{}, neverAcquired(ctx, db, r.Name)
	case l.Token == r.Token && l.Holder == "":
		return releasedLease{Release: r.Release, Released: operator.Released{At: l.ExpiresAt, Held: l.since()}}, nil
	case l.Held || l.lapsed():
		return releasedLease{}, fmt.Errorf("nothing is changed: token %d is not the current one of %q: that is %d, of %s",
			r.Token, r.Name, l.Token, cli.Printable(l.Holder))
	default:
		return releasedLease{}, fmt.Errorf("nothing is changed: token %d is not the current one of %q: that was %d, and the name is free",
			r.Token, r.Name, l.Token)
	}
}

// lockers finds the transactions that keep the next holder out, and ends them if that was
// asked for. Those that began later are the next holder's own.
func (r release) lockers(ctx context.Context, db database, at time.Time) (all []lockerEnd, err error) {
	found, err := operator.Lockers(ctx, db.pool, r.Name)
	if err != nil {
		return nil, err
	}
	for _, l := range found {
		if l.Since.After(at) {
			continue
		}
		end := lockerEnd{Locker: l}
		if r.terminate {
			var failed error
			end.ending, failed = l.Terminate(ctx, db.pool, at)
			if failed == nil && !end.over() {
				failed = errStillOpen
			}
			err = errors.Join(err, failed)
		}
		all = append(all, end)
	}
	return all, err
}
