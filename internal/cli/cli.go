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
	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitDone  = 0
	ExitError = 1
	ExitUsage = 2
	ExitHeld  = 75 // the lease is held by another, or a call with the key is running
	ExitLost  = 76 // the lease was lost while the command ran
)

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
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return UsageError{FlagError(cmd, err)} })

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
	help := len(args) > 0 && args[0] == "help"
	if help { // which answers an unknown word with the help too
		args = args[1:]
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		text, near, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
		return UsageError{unknown(text, strings.Fields(near), root.Name()+" --help lists them")}
	}
	if help && cmd.HasSubCommands() && cmd != root {
		return Subcommands(cmd, rest)
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
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	return UsageError{unknown(text, cmd.SuggestionsFor(args[0]), "there are "+strings.Join(names, ", "))}
}

// unknown says what may have been meant, or else where to look.
func unknown(text string, near []string, look string) error {
	if len(near) > 0 {
		look = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text + "; " + look)
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
	case usage, errors.Is(err, pglock.ErrInvalidName):
		return ExitUsage
	case errors.Is(err, pglock.ErrHeld), errors.Is(err, idem.ErrInProgress):
		return ExitHeld
	case errors.Is(err, pglock.ErrLost):
		return ExitLost
	default:
		return ExitError
	}
}
