// Package handbook_test keeps docs true: the commands of each page run in their
// order, and links lead somewhere. Go snippets are the business of package readme.
package handbook_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const root = "../.."

// pages are the handbook's, without the folders of other things in docs.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestHandbook_CommandsRun(t *testing.T) {
	t.Parallel()
	bin := gatepost(t)
	for _, page := range pages(t) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			blocks := parse(read(t, page))
			if len(blocks) == 0 {
				return
			}
			d := desk{url: readers(t, filepath.Base(page)), bin: bin, dir: t.TempDir()}
			for _, b := range blocks {
				d.run(t, b)
			}
		})
	}
}

// readers is the database of a page's reader, as programs without pgx are told of it: some
// pages are for the schema's owner, and migrating is for a direct connection.
func readers(t *testing.T, page string) string {
	t.Helper()
	url := pgtest.Plain(t, pgtest.Database(t))
	if page == "upgrades.md" || page == "runbook.md" && pgtest.AsRole() {
		return pgtest.Owner(t, url)
	}
	return url
}

func TestHandbook_EveryPageIsListed(t *testing.T) {
	t.Parallel()
	index := read(t, filepath.Join(root, "docs", "README.md"))
	for _, page := range pages(t) {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md doesn't list %s", name)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestHandbook_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), filepath.Join(root, "README.md")) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
				continue
			}
			if anchor != "" && !hasHeading(read(t, path), anchor) {
				t.Errorf("%s: %s has no heading for #%s", page, target, anchor)
			}
		}
	}
}

// hasHeading tells whether a heading has that anchor, as GitHub makes them.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
				return r
			default:
				return -1
			}
		}, strings.ToLower(strings.TrimSpace(heading)))
		if slug == anchor {
			return true
		}
	}
	return false
}

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// A promise names the tests that hold it: they exist.
func TestPromises_NameTestsThatExist(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	for _, dir := range []string{"pglock", "idem", "idem/idemhttp", "cmd/gatepost", "migrations"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, m := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
				exists[m[1]] = true
			}
		}
	}
	named := testName.FindAllStringSubmatch(read(t, filepath.Join(root, "docs", "promises.md")), -1)
	if len(named) < 30 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !exists[m[1]] {
			t.Errorf("docs/promises.md names %s, which isn't there", m[1])
		}
	}
}
