package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/migrations"
	"github.com/spf13/cobra"
)

// build is what this program was built from.
type build struct {
	Version    string `json:"version"` // the module's; "(devel)" when it was not built by its version
	Revision   string `json:"revision,omitempty"`
	RevisionAt string `json:"revision_at,omitempty"` // RFC 3339
	Modified   bool   `json:"modified"`              // by changes that were not committed
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Schema     int64  `json:"schema_version"` // which migrate up brings a database to
}

// thisBuild is that of the running program.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok { // built without modules
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	return build{
		Version: cmp.Or(info.Main.Version, "(devel)"), Revision: settings["vcs.revision"], RevisionAt: settings["vcs.time"],
		Modified: settings["vcs.modified"] == "true", Go: info.GoVersion,
		Platform: settings["GOOS"] + "/" + settings["GOARCH"], Schema: migrations.Latest(),
	}
}

func (b build) fields() []field {
	fields := []field{{"VERSION", b.Version, cli.Plain}}
	if b.Revision != "" {
		text := b.Revision + ", " + b.RevisionAt
		if b.Modified {
			text += ", with changes that are not in it"
		}
		fields = append(fields, field{"REVISION", text, cli.Plain})
	}
	return append(
		fields,
		field{"GO", b.Go + " " + b.Platform, cli.Plain},
		field{"SCHEMA", fmt.Sprintf("%d: gatepost migrate up brings a database to it", b.Schema), cli.Plain},
	)
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show which version this program is, and which schema it brings",
		Long: `Show the version of this program, the revision that it was built from, the
version of Go, and the version of the schema gatepost that it brings. Which one
a database has, gatepost migrate status shows.`,
		Example: `  gatepost version
  gatepost version --json | jq .schema_version`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(thisBuild())
			}
			screen := cli.ScreenOf(cmd.OutOrStdout())
			return printLines(screen.W, draw(screen, thisBuild().fields()))
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
