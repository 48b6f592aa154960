package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// The groups that the help lists commands in.
const (
	groupLeases   = "leases"
	groupKeys     = "keys"
	groupDatabase = "database"
	groupMore     = "more"
)

var groups = []struct {
	id, title string
	commands  []string
}{
	{groupLeases, "Leases:", []string{"ls", "show", "watch", "run", "release"}},
	{groupKeys, "Idempotency keys:", []string{"keys"}},
	{groupDatabase, "Your database:", []string{"migrate", "guard", "doctor", "gc", "bench"}},
	{groupMore, "More:", []string{"demo", "completion", "man", "version", "help"}},
}

// group puts the commands into their groups.
func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(g.commands, cmd.Name()) {
				cmd.GroupID = g.id
			}
		}
	}
	root.SetHelpCommandGroupID(groupMore)
}
