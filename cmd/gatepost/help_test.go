package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	shellQuoted = regexp.MustCompile(`'[^']*'`)
	afterwards  = regexp.MustCompile(`\s(\||\|\||>|>>)\s.*|   .*`)
)

// Who pastes an example gets no error of usage.
func TestHelp_ExamplesAreGoodUsage(t *testing.T) {
	t.Parallel()
	for _, cmd := range leaves(rootCommand()) {
		if cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s says nothing, or gives no example", cmd.CommandPath())
		}
		if path := cmd.CommandPath(); !strings.Contains(cmd.Example, path) {
			t.Errorf("%s has examples of something else: %q", path, cmd.Example)
		}
		for line := range strings.Lines(cmd.Example) {
			checkExample(t, strings.TrimSpace(line))
		}
	}
}

// leaves are the commands that do something, but for the shells' scripts, whose help is
// cobra's own.
func leaves(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range documented(cmd) {
		switch {
		case sub.Name() == "completion" || sub.Name() == "help":
		case sub.HasSubCommands():
			all = append(all, leaves(sub)...)
		default:
			all = append(all, sub)
		}
	}
	return all
}

func checkExample(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(afterwards.ReplaceAllString(shellQuoted.ReplaceAllString(line, "quoted"), ""))
	if len(words) < 2 || words[0] != "gatepost" {
		t.Errorf("%q is no line of gatepost", line)
		return
	}
	cmd, rest, err := rootCommand().Find(words[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil && cmd.Name() == "run" {
		_, _, err = splitRun(cmd, cmd.Flags().Args())
	} else if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%q: %v", line, err)
	}
}
