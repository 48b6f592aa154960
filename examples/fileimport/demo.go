package main

import "github.com/spf13/cobra"

func demoCommand() *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "Replay the incident, three ways"}
}
func demoImporterCommand() *cobra.Command { return &cobra.Command{Use: "demo-importer", Hidden: true} }
