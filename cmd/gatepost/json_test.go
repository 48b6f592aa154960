package main

import (
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/spf13/cobra"
)

// withJSON are the commands that have --json, each with arguments that make it print
// something.
func withJSON(t *testing.T, url string) map[string][]string {
	t.Helper()
	pool := leases(t, url)
	someKeys(t, url)
	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(t.Context()) })
	lease, err := client.TryAcquire(t.Context(), "fenced", nil)
	if err != nil {
		t.Fatal(err)
	}
	beginFenced(t, lease)
	execute(t, pool, "CREATE TABLE public.guarded (id int)")
	want(t, gatepost(t, url, "guard", "add", "guarded", "--lease", "b/held"), 0, "")
	return map[string][]string{
		"ls": {"--all"}, "show": {"fenced"}, "release": {"fenced", "--token", tokenText(lease.Token()), "--terminate"}, "version": nil,
		"keys ls": nil, "keys show": {"payments.charge", "acme", "done4444bbbb2222cccc", "--body"}, "keys forget": {"payments.charge", "bolt", "lost"},
		"guard ls": nil, "gc": nil, "doctor": nil, "bench": {"try", "--pairs", "1", "--block", "8"}, "migrate status": nil, "migrate up": nil,
		"migrate down": nil,
	}
}

// Programs read all of it alike: names in snake_case, tokens as strings, moments in RFC
// 3339 and UTC.
func TestJSON_HasTheSameHabitsEverywhere(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	owner := pgtest.Owner(t, url)
	arguments := withJSON(t, url)
	for _, path := range append(pathsWithJSON(rootCommand()), "migrate down") { // after which there is nothing to print
		args, known := arguments[path]
		_, later := arguments["migrate down"]
		switch {
		case path == "watch" || strings.HasPrefix(path, "guard ") && !known: // they have tests of their own
		case path == "migrate down" && later:
			delete(arguments, path)
		case path == "migrate down":
			checkHabits(t, path, gatepost(t, owner, "migrate", "down", "--force", "--json"))
		case !known:
			t.Errorf("%s has --json, and no arguments here", path)
		case strings.HasPrefix(path, "migrate "):
			checkHabits(t, path, gatepost(t, owner, append(append(strings.Fields(path), args...), "--json")...))
		default:
			checkHabits(t, path, gatepost(t, url, append(append(strings.Fields(path), args...), "--json")...))
		}
	}
}

func pathsWithJSON(cmd *cobra.Command) (paths []string) {
	if cmd.Flags().Lookup("json") != nil {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		paths = append(paths, path)
	}
	for _, sub := range cmd.Commands() {
		paths = append(paths, pathsWithJSON(sub)...)
	}
	return paths
}

func checkHabits(t *testing.T, path string, r result) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Errorf("%s --json printed %q, %q: %v", path, r.stdout, r.stderr, err)
		return
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Errorf("%s --json printed more than one value: %q", path, r.stdout)
	}
	walk(t, path, "", value)
}

var (
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	moment    = regexp.MustCompile(`(acquired|renewed|expires|created|done|applied|revision)_at$|^(at|since|until)$`)
)

func walk(t *testing.T, path, name string, value any) {
	t.Helper()
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			walk(t, path, name, element)
		}
	case map[string]any:
		for key, element := range v {
			if !snakeCase.MatchString(key) && name != "headers" {
				t.Errorf("%s --json has the name %q", path, key)
			}
			if key != "data" { // the holder's own
				walk(t, path, key, element)
			}
		}
	case json.Number:
		if strings.Contains(name, "token") || moment.MatchString(name) {
			t.Errorf("%s --json has %s as the number %s", path, name, v)
		}
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); moment.MatchString(name) && (err != nil || !strings.HasSuffix(v, "Z") || at.Year() < 2000) {
			t.Errorf("%s --json has %s as %q", path, name, v)
		}
	}
}
