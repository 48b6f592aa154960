package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/spf13/cobra"
)

func keysForgetCommand(conn *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
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
				switch {
				case err != nil:
					return err
				case asJSON:
					return json.NewEncoder(cmd.OutOrStdout()).Encode(forgottenJSON{true, keyJSONOf(was, false)})
				default:
					_, err = fmt.Fprintln(cmd.OutOrStdout(), forgottenText(was))
					return err
				}
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// forgottenJSON is the key as it was.
type forgottenJSON struct {
	Forgotten bool `json:"forgotten"`
	keyJSON
}

// forgottenText says what was there; one that came at the last moment was not seen.
func forgottenText(was operator.Key) string {
	name := cli.Printable(was.String())
	if was.State == "" {
		return name + " is forgotten."
	}
	return fmt.Sprintf("%s is forgotten. It was %s.", name, cli.Printable(stateText(was)))
}

// forgetKey returns what was there; no more than the key of one that came between the look
// and the removal.
func forgetKey(ctx context.Context, db database, key idem.Key) (operator.Key, error) {
	store, err := idem.New(db.pool, idem.Config{})
	if err != nil {
		return operator.Key{}, err
	}
	was, err := operator.RecordOf(ctx, db.pool, key)
	if err != nil && !errors.Is(err, idem.ErrNotFound) {
		return operator.Key{}, err
	}
	if err := store.Forget(ctx, key); err != nil {
		return operator.Key{}, notForgotten(ctx, db, key, err)
	}
	was.Key.Key = key
	return was.Key, nil
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
