// Package cli is what Gatepost's programs share: exit codes, one-line errors
// that say what to do, and the connection to the database.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	ExitDone  = 0
	ExitError = 1
	ExitUsage = 2
	ExitHeld  = 75 // the lease is held by another, or a call with the key is running
	ExitLost  = 76 // the lease was lost while the command ran
)

// UsageError is a command line that can't be used.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e UsageError) Unwrap() error { return e.Err }

// CodeError ends the program with an exit code of another program's, and without a
// word: that one has said what there was to say.
type CodeError int

func (e CodeError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Execute runs a program's command line, prints an error as one line, and returns
// the exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	foldHelp(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return UsageError{unknownFlag(cmd, err)} })

	err := known(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if _, silent := errors.AsType[CodeError](err); err != nil && !silent {
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), Explain(err))
	}
	return ExitCode(err)
}

// known refuses an unknown command before cobra answers it with the help.
func known(root *cobra.Command, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // cobra adds it as it runs
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	if _, _, err := root.Find(args); err != nil {
		text, near, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
		return UsageError{unknown(text, strings.Fields(near))}
	}
	return nil
}

// Subcommands refuses a word that is none of a command's own, and says which it may have
// been. It is the Args of a command that only has subcommands: without it, cobra answers
// with the help, and success.
func Subcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	return UsageError{unknown(fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath()), cmd.SuggestionsFor(args[0]))}
}

// unknownFlag adds the flags that may have been meant to an error about one that isn't
// there.
func unknownFlag(cmd *cobra.Command, err error) error {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	if question := DidYouMean("--"+missing.GetSpecifiedName(), names); question != "" {
		return fmt.Errorf("%w; %s", err, question)
	}
	return err
}

func unknown(text string, near []string) error {
	if len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// ExitCode is the exit code of a program that ends with err.
func ExitCode(err error) int {
	code, passed := errors.AsType[CodeError](err)
	_, usage := errors.AsType[UsageError](err)
	switch {
	case err == nil:
		return ExitDone
	case passed:
		return int(code)
	case usage:
		return ExitUsage
	case errors.Is(err, pglock.ErrHeld), errors.Is(err, idem.ErrInProgress):
		return ExitHeld
	case errors.Is(err, pglock.ErrLost):
		return ExitLost
	default:
		return ExitError
	}
}

// Explain makes one line of an error, with what to do about it where that is
// known.
func Explain(err error) string {
	text := oneLine(err.Error())
	if notMigrated(err) {
		return "the database has no Gatepost schema, or an old one; run: gatepost migrate up"
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return text + remedy(pgErr)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return "no connection to the database: " + text
	}
	return text
}

// notMigrated says that Gatepost's schema, or something in it, is missing.
func notMigrated(err error) bool {
	if errors.Is(err, pglock.ErrNotMigrated) || errors.Is(err, idem.ErrNotMigrated) {
		return true
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.Contains(pgErr.Message, "gatepost") {
		return false
	}
	switch pgErr.Code {
	case "3F000", "42P01", "42703", "42883": // no such schema, table, column, function
		return true
	}
	return false
}

func remedy(err *pgconn.PgError) string {
	switch err.Code {
	case "42501": // insufficient_privilege
		return "; ask the database's owner for that right, or use another role"
	case "3D000": // invalid_catalog_name
		return "; create the database, or correct the database URL"
	case "28P01", "28000": // invalid password, invalid authorization
		return "; correct the role or the password in the database URL"
	case "55P03": // lock_not_available
		return "; another session has held a lock on it for too long, perhaps of a program that was stopped: end it, and start again"
	case "25006": // read_only_sql_transaction
		return "; this server is read-only: connect to the primary"
	}
	return ""
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Connect opens a pool and fails now if it can't, and not in the middle of the
// work. An empty url leaves it to the PG* variables. The caller closes the pool.
func Connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, UsageError{err}
	}
	// What Go sends is UTF-8, whatever the database or the role defaults to.
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}
