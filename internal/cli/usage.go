package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UsageError is a command line that can't be used.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e UsageError) Unwrap() error { return e.Err }

// Usage makes of a refused argument an error of usage that says what is missing or too
// much, by the command's Use, and gives the first of its examples.
func Usage(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if args(cmd, given) == nil {
			return nil
		}
		return Misuse(cmd, misfit(cmd, given))
	}
}

// Misuse is an error of usage that says what is wrong with a command's arguments, and
// what would be right.
func Misuse(cmd *cobra.Command, wrong string) error {
	return UsageError{fmt.Errorf("%s; usage: %s%s", wrong, useOf(cmd), exampleOf(cmd))}
}

// misfit says which argument is missing or too much.
func misfit(cmd *cobra.Command, given []string) string {
	var required, optional int
	names := argumentNames(cmd)
	for _, name := range names {
		if strings.HasPrefix(name, "[") {
			optional++
		} else {
			required++
		}
	}
	switch {
	case len(given) < required:
		return missingText(names[len(given):required])
	case len(names) == 0:
		return fmt.Sprintf("%s takes no argument, but got %q", cmd.Name(), given[0])
	default:
		most := min(required+optional, len(given)-1)
		return fmt.Sprintf("%q is one argument too many", given[most])
	}
}

// missingText is "A is missing", or "A, B and C are missing".
func missingText(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return strings.TrimSuffix(names[0], "...") + " is missing"
	}
	return strings.Join(names[:last], ", ") + " and " + names[last] + " are missing"
}

// argumentNames are the words of a command's Use that stand for arguments: those before
// a flag.
func argumentNames(cmd *cobra.Command) (names []string) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "[-") || word == "[flags]" {
			break
		}
		names = append(names, word)
	}
	return names
}

// useOf is a command's line of usage without what all commands have.
func useOf(cmd *cobra.Command) string {
	words := strings.Fields(cmd.Use)
	return strings.Join(append([]string{cmd.CommandPath()}, words[1:]...), " ")
}

// exampleOf is the first example of a command, without what is said about it.
func exampleOf(cmd *cobra.Command) string {
	first, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if first, _, _ = strings.Cut(first, "   "); first == "" {
		return ""
	}
	return "; for example: " + first
}

// FlagError says what is wrong with a flag, and what would be right.
func FlagError(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := wrong.GetFlag()
		return fmt.Errorf("--%s can't be %q: %s%s", f.Name, wrong.GetValue(), expected(f.Value.Type(), wrong.GetValue()), exampleOf(cmd))
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		f := bare.GetFlag()
		return fmt.Errorf("--%s needs a value: %s%s", f.Name, f.Usage, exampleOf(cmd))
	}
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
	return fmt.Errorf("%w; those that there are: %s --help", err, cmd.CommandPath())
}

// expected says what a flag of a type takes.
func expected(kind, given string) string {
	switch kind {
	case "duration":
		if _, err := strconv.ParseFloat(given, 64); err == nil {
			return fmt.Sprintf("a time needs its unit, as in %sms, %ss, %sm or %sh", given, given, given, given)
		}
		return "a time is a number with its unit, as in 500ms, 30s, 5m or 1h30m"
	case "int", "int64":
		return "it takes a whole number"
	case "float64":
		return "it takes a number"
	case "bool":
		return "it takes no value, or true or false"
	default:
		return "it takes a " + kind
	}
}
