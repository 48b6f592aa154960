package main

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/pglock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// completeWithin bounds what a key press waits for; mostCompleted is how many words
	// it gets.
	completeWithin = time.Second
	mostCompleted  = 200
)

// completer finds words in the database that begin like one that is being typed. It may
// fail: then there are none, since the line that is being typed is no place to complain.
type completer func(ctx context.Context, db database, args []string, begun string) ([]cobra.Completion, error)

// completionCommand is cobra's, with an error for a shell that it doesn't know.
func completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	cmd.Short = "Print the script that completes commands and names: bash, zsh, fish, powershell"
	cmd.Long = `Print the script that lets a shell complete commands, flags, and what is in the
database: names of leases, operations and scopes of keys, tables. It asks the
database at each press of the key, for a second at most, and is silent without
one.`
	cmd.Example = `  source <(gatepost completion bash)
  gatepost completion zsh > "${fpath[1]}/_gatepost"
  gatepost completion fish > ~/.config/fish/completions/gatepost.fish`
	cmd.Args = cli.Subcommands
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range cmd.Commands() {
		shell.Args = usage(cobra.NoArgs)
	}
}

// complete lets the shell complete arguments with what is in the database.
func complete(root *cobra.Command, conn *connection) {
	for path, words := range map[string]arguments{
		"show":         {byPlace: []completer{leaseNames}},
		"watch":        {byPlace: []completer{leaseNames}},
		"run":          {byPlace: []completer{leaseNames}, command: true},
		"release":      {byPlace: []completer{leaseNames}},
		"guard add":    {byPlace: []completer{tableNames}, repeat: true},
		"guard ls":     {byPlace: []completer{guardedTables}, repeat: true},
		"guard remove": {byPlace: []completer{guardedTables}, repeat: true},
		"keys show":    {byPlace: []completer{operations, scopes}},
		"keys forget":  {byPlace: []completer{operations, scopes}},
	} {
		if cmd, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 {
			cmd.ValidArgsFunction = words.complete(conn)
		}
	}
	if ls, _, err := root.Find([]string{"keys", "ls"}); err == nil {
		completeKeyFlags(ls, conn)
	}
	for path, flag := range map[string]string{"ls": "prefix", "watch": "prefix", "guard add": "lease"} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return conn.complete(cmd, leaseNames, nil, begun)
			})
		}
	}
	noFiles(root)
}

// noFiles keeps the shell from offering files where none is meant: for the arguments and
// flags that nothing else is offered for.
func noFiles(cmd *cobra.Command) {
	if cmd.Name() == "man" {
		cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	}
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions) // fails for those that have one
	})
	for _, sub := range cmd.Commands() {
		noFiles(sub)
	}
}

// arguments are what the words behind a command are.
type arguments struct {
	byPlace []completer
	repeat  bool // the last, as often as one likes
	command bool // a command of the shell's follows
}

func (a arguments) complete(conn *connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		place := len(args)
		if a.repeat {
			place = min(place, len(a.byPlace)-1)
		}
		switch {
		case place < len(a.byPlace):
			return conn.complete(cmd, a.byPlace[place], args, begun)
		case a.command && !slices.Contains(args, "--"):
			return []cobra.Completion{cobra.CompletionWithDesc("--", "the command comes behind it")}, cobra.ShellCompDirectiveNoFileComp
		case a.command:
			return nil, cobra.ShellCompDirectiveDefault
		default:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func completeKeyFlags(ls *cobra.Command, conn *connection) {
	byDatabase := func(find completer) cobra.CompletionFunc {
		return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			operation, _ := cmd.Flags().GetString("operation")
			return conn.complete(cmd, find, []string{operation}, begun)
		}
	}
	for flag, fn := range map[string]cobra.CompletionFunc{
		"operation": byDatabase(operations),
		"scope":     byDatabase(scopes),
		"state":     cobra.FixedCompletions(stateWords(), cobra.ShellCompDirectiveNoFileComp),
	} {
		_ = ls.RegisterFlagCompletionFunc(flag, fn) // fails for a flag that isn't there
	}
}

func stateWords() (words []cobra.Completion) {
	for _, state := range operator.KeyStates {
		words = append(words, strings.ReplaceAll(string(state), " ", "-"))
	}
	return words
}

func (c connection) complete(cmd *cobra.Command, find completer, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	var words []cobra.Completion
	err := c.with(ctx, func(ctx context.Context, db database) (err error) {
		words, err = find(ctx, db, args, begun)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// leaseNames are the names that there are, held or free, with who has them.
func leaseNames(ctx context.Context, db database, _ []string, begun string) (words []cobra.Completion, err error) {
	infos, err := db.client.List(ctx, &pglock.ListOptions{Prefix: begun, Free: true, Limit: mostCompleted})
	for _, info := range infos {
		if !typable(info.Name) {
			continue
		}
		l := lease{LeaseInfo: info}
		left, _ := l.left(cli.Coarse)
		if info.Held {
			left = cli.Printable(info.Holder) + ", " + left
		}
		words = append(words, cobra.CompletionWithDesc(info.Name, left))
	}
	return words, err
}

func operations(ctx context.Context, db database, _ []string, begun string) ([]cobra.Completion, error) {
	found, err := operator.KeyOperations(ctx, db.pool, "", mostCompleted)
	return beginningWith(found, begun), err
}

// scopes are those of the operation before.
func scopes(ctx context.Context, db database, args []string, begun string) ([]cobra.Completion, error) {
	if args[0] == "" {
		return nil, nil
	}
	found, err := operator.KeyScopes(ctx, db.pool, args[0], mostCompleted)
	return beginningWith(found, begun), err
}

// tableNames are the tables that may be guarded.
func tableNames(ctx context.Context, db database, _ []string, begun string) ([]cobra.Completion, error) {
	found, err := operator.Tables(ctx, db.pool, begun, mostCompleted)
	return beginningWith(found, begun), err
}

// guardedTables are those that are.
func guardedTables(ctx context.Context, db database, _ []string, begun string) ([]cobra.Completion, error) {
	guards, err := pglock.Guards(ctx, db.pool)
	var names []string
	for _, g := range guards {
		names = append(names, tableText(g.Table))
	}
	return beginningWith(names, begun), err
}

func beginningWith(found []string, begun string) (words []cobra.Completion) {
	for _, word := range found {
		if strings.HasPrefix(word, begun) && typable(word) {
			words = append(words, word)
		}
	}
	return words
}

// typable leaves out what a shell or a terminal would make something else of.
func typable(word string) bool { return cli.Printable(word) == word && utf8.ValidString(word) }
