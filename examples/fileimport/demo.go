package main

import (
	"github.com/gatepost/gatepost/internal/incident"
	"github.com/spf13/cobra"
)

// demoCommands are the replay of the incident, which the command line of Gatepost has
// too: "gatepost demo".
func demoCommands() []*cobra.Command {
	return incident.Program{
		Name: "fileimport",
		Next: `"fileimport import" has (1) and (3). More about all three: README.md.`,
	}.Commands()
}
