package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man [DIR]",
		Short: "Write the manual pages into a directory, or print the first one",
		Long: `Write a manual page for each command into a directory, as gatepost-ls.1 and so
on. Without a DIR, print the page of gatepost itself. What they say is what
--help says.`,
		Example: `  gatepost man | man -l -
  gatepost man /usr/local/share/man/man1`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprint(cmd.OutOrStdout(), manPage(cmd.Root()))
				return err
			}
			n, err := writePages(cmd.Root(), args[0])
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d pages are in %s. Read the first one: man -l %s\n", n, args[0], filepath.Join(args[0], "gatepost.1"))
			}
			return err
		},
	}
}

// writePages writes the page of a command and those of its subcommands, and counts them.
// It makes the directory where there is none, but not one above it.
func writePages(cmd *cobra.Command, dir string) (n int, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return 0, err
	}
	file := filepath.Join(dir, pageName(cmd)+".1")
	if err := os.WriteFile(file, []byte(manPage(cmd)), 0o644); err != nil { //nolint:gosec // a manual is for everybody
		return 0, err
	}
	n = 1
	for _, sub := range documented(cmd) {
		more, err := writePages(sub, dir)
		if n += more; err != nil {
			return n, err
		}
	}
	return n, nil
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// documented are the subcommands that have a page.
func documented(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			all = append(all, sub)
		}
	}
	return all
}
