package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/spf13/cobra"
)

func keysForgetCommand(conn *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "forget OPERATION SCOPE KEY",
		Short: "Remove one key, so that its operation can run again",
		Long: `Remove one key with its reply and its steps, so that the next call with it runs.

What the operation did is not undone: whoever sends the same request again gets
it done again. Look first what happened: gatepost keys show.

It is refused while a call with the key is running, in a transaction too, and
changes nothing then. A claim that has lapsed is removed, and its process, if it
wakes up, can no longer finish.

Exit codes: 1 when there is no such key, 75 when a call is running.`,
		Example: `  gatepost keys forget payments.charge acme 9a1f27c0`,
		Args:    usage(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return conn.with(cmd.Context(), func(ctx context.Context, db database) error {
				was, err := forgetKey(ctx, db, keyOf(args))
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), was)
				return err
			})
		},
	}
}

// forgetKey says what was there.
func forgetKey(ctx context.Context, db database, key idem.Key) (string, error) {
	store, err := idem.New(db.pool, idem.Config{})
	if err != nil {
		return "", err
	}
	was, err := operator.RecordOf(ctx, db.pool, key)
	if err != nil && !errors.Is(err, idem.ErrNotFound) {
		return "", err
	}
	if err := store.Forget(ctx, key); err != nil {
		return "", notForgotten(ctx, db, key, err)
	}
	if was.State == "" { // it came between the two
		return fmt.Sprintf("%s is forgotten.", cli.Printable(key.String())), nil
	}
	return fmt.Sprintf("%s is forgotten. It was %s.", cli.Printable(key.String()), cli.Printable(stateText(was.Key))), nil
}

// notForgotten says why, and what to do.
func notForgotten(ctx context.Context, db database, key idem.Key, err error) error {
	if live, ok := errors.AsType[*idem.InProgressError](err); ok {
		return liveClaimError{key, live.RetryAfter, err}
	}
	if errors.Is(err, idem.ErrInvalidKey) {
		return cli.UsageError{Err: err}
	}
	return noSuchKey(ctx, db, key, err)
}

// liveClaimError says that a call with the key is running.
type liveClaimError struct {
	key  idem.Key
	left time.Duration // of its lease; 0 in transaction mode
	err  error
}

func (e liveClaimError) Error() string {
	how := "in a transaction that is still open"
	if e.left > 0 {
		how = "under a claim that lasts for " + cli.Duration(e.left) + " unless renewed"
	}
	return fmt.Sprintf("%s: a call with this key is running, %s; nothing was forgotten. Wait for its end, or end its process", e.key, how)
}

func (e liveClaimError) Unwrap() error { return e.err }
