package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/migrations"
)

func TestVersion_SaysWhatThisProgramIs(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://127.0.0.1:1/none"
	short := gatepost(t, nowhere, "--version")
	if short.code != 0 || !strings.HasPrefix(short.stdout, "gatepost ") || strings.Count(short.stdout, "\n") != 1 {
		t.Errorf("--version printed %q, %q, exit code %d", short.stdout, short.stderr, short.code)
	}
	r := gatepost(t, nowhere, "version")
	if r.code != 0 || !strings.HasPrefix(r.stdout, "VERSION   ") || !strings.Contains(r.stdout, "\nGO        "+runtime.Version()+" ") {
		t.Errorf("version printed %q, %q, exit code %d", r.stdout, r.stderr, r.code)
	}
	var v struct {
		Version       string
		Go            string
		SchemaVersion int64 `json:"schema_version"`
	}
	r = gatepost(t, nowhere, "version", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatalf("%q: %v", r.stdout, err)
	}
	if short.stdout != "gatepost "+v.Version+"\n" || v.Go != runtime.Version() || v.SchemaVersion != migrations.Latest() {
		t.Errorf("version --json printed %+v", v)
	}
}

func TestVersion_IsThatOfTheBuild(t *testing.T) {
	t.Parallel()
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	info := &debug.BuildInfo{
		GoVersion: "go1.99",
		Main:      debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			setting("vcs.revision", "0123456789abcdef0123456789abcdef01234567"),
			setting("vcs.time", "2026-01-02T03:04:05Z"), setting("vcs.modified", "true"),
			setting("GOOS", "plan9"), setting("GOARCH", "mips"),
		},
	}
	want := build{
		Version: "v1.2.3", Revision: "0123456789abcdef0123456789abcdef01234567", RevisionAt: "2026-01-02T03:04:05Z",
		Modified: true, Go: "go1.99", Platform: "plan9/mips", Schema: migrations.Latest(),
	}
	if got := buildOf(info); got != want {
		t.Errorf("it is %+v, want %+v", got, want)
	}
	if got := buildOf(&debug.BuildInfo{}).Version; got != "(devel)" {
		t.Errorf("of a build that doesn't know, the version is %q", got)
	}
}
