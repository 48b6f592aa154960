package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/spf13/cobra"
)

// program is one whose commands do nothing.
func program() *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "A program"}
	for _, c := range []struct {
		use, example string
		args         cobra.PositionalArgs
	}{
		{"none", "  prog none --all   for all of them", cobra.NoArgs},
		{"one NAME --flag F", "  prog one n\n  prog one m", cobra.ExactArgs(1)},
		{"three A B C", "  prog three a b c", cobra.ExactArgs(3)},
		{"some T... [flags]", "  prog some t", cobra.MinimumNArgs(1)},
		{"maybe [DIR]", "", cobra.MaximumNArgs(1)},
	} {
		cmd := &cobra.Command{
			Use: c.use, Example: c.example, Args: cli.Usage(c.args),
			RunE: func(*cobra.Command, []string) error { return nil },
		}
		cmd.Flags().Duration("ttl", time.Second, "how long")
		cmd.Flags().Int("n", 1, "how many")
		cmd.Flags().Bool("json", false, "print JSON")
		root.AddCommand(cmd)
	}
	group := &cobra.Command{Use: "group", Args: cli.Subcommands, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	group.AddCommand(&cobra.Command{Use: "add", Run: func(*cobra.Command, []string) {}}, &cobra.Command{Use: "remove", Run: func(*cobra.Command, []string) {}})
	root.AddCommand(group)
	return root
}

func TestUsage_SaysWhatIsWrongAndWhatIsRight(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"one":              "NAME is missing; usage: prog one NAME --flag F; for example: prog one n",
		"one a b":          `"b" is one argument too many; usage: prog one NAME --flag F; for example: prog one n`,
		"three":            "A, B and C are missing; usage: prog three A B C; for example: prog three a b c",
		"three a b":        "C is missing; usage: prog three A B C; for example: prog three a b c",
		"some":             "T is missing; usage: prog some T... [flags]; for example: prog some t",
		"maybe a b":        `"b" is one argument too many; usage: prog maybe [DIR]`,
		"none a":           `none takes no argument, but got "a"; usage: prog none; for example: prog none --all`,
		"none --ttl 5":     `--ttl can't be "5": a time needs its unit, as in 5ms, 5s, 5m or 5h; for example: prog none --all`,
		"maybe --ttl soon": `--ttl can't be "soon": a time is a number with its unit, as in 500ms, 30s, 5m or 1h30m`,
		"maybe --n x":      `--n can't be "x": it takes a whole number`,
		"maybe --json=x":   `--json can't be "x": it takes no value, or true or false`,
		"maybe --ttl":      "--ttl needs a value: how long",
		"maybe --jsn":      "unknown flag: --jsn; did you mean --json?",
		"maybe --xyzzy":    "unknown flag: --xyzzy; those that there are: prog maybe --help",
		"nothing":          `unknown command "nothing" for "prog"; prog --help lists them`,
		"grop":             `unknown command "grop" for "prog"; did you mean group?`,
		"group ad":         `unknown command "ad" for "prog group"; did you mean add?`,
		"group x":          `unknown command "x" for "prog group"; there are add, remove`,
		"help x":           `unknown command "x" for "prog"; prog --help lists them`,
		"help group x":     `unknown command "x" for "prog group"; there are add, remove`,
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Execute(context.Background(), program(), strings.Fields(line), &stdout, &stderr)
		if got := stderr.String(); code != cli.ExitUsage || got != "prog: "+want+"\n" || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, %q and %q, want %q", line, code, got, stdout.String(), want)
		}
	}
	for _, line := range []string{"", "help", "help group", "help group add", "group", "one a", "some a b", "maybe", "one --help"} {
		var stdout, stderr bytes.Buffer
		if code := cli.Execute(context.Background(), program(), strings.Fields(line), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, %q", line, code, stderr.String())
		}
	}
}
