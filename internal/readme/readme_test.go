// Package readme_test keeps README.md true: its Go snippets are the bodies of
// Examples, which run. Its commands are run by .ci/run.
package readme_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Run with -update to write the snippets.
var update = flag.Bool("update", false, "write the Examples into README.md")

const root = "../.."

var snippet = regexp.MustCompile("(?s)(<!-- example: (\\S+) (\\S+) -->\n```go\n)(.*?)(```\n)")

func TestReadme_SnippetsAreTheExamples(t *testing.T) {
	t.Parallel()
	path := filepath.Join(root, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	want := snippet.ReplaceAllFunc(text, func(block []byte) []byte {
		found++
		m := snippet.FindSubmatch(block)
		body := exampleBody(t, string(m[2]), string(m[3]))
		return bytes.Join([][]byte{m[1], []byte(body), m[5]}, nil)
	})
	if found == 0 {
		t.Fatal("README.md has no snippets")
	}
	if *update {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(text, want) {
		t.Error("README.md differs from the Examples; run: go test ./internal/readme -update")
	}
}

// exampleBody is the code of an Example without its Output comment.
func exampleBody(t *testing.T, pkg, name string) string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, filepath.Join(root, pkg, "example_test.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Name.Name != name {
			continue
		}
		var b bytes.Buffer
		cfg := printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}
		if err := cfg.Fprint(&b, files, &printer.CommentedNode{Node: fn.Body, Comments: file.Comments}); err != nil {
			t.Fatal(err)
		}
		return dedent(b.String())
	}
	t.Fatalf("%s has no %s", pkg, name)
	return ""
}

// dedent takes the braces, one level of indentation, the Output comment, and the
// first paragraph off, which gets the test's database.
func dedent(body string) string {
	var out strings.Builder
	lines := strings.Split(body, "\n")
	for _, line := range lines[1 : len(lines)-1] {
		if strings.HasPrefix(line, "\t// Output:") {
			break
		}
		out.WriteString(strings.TrimPrefix(line, "\t") + "\n")
	}
	_, rest, _ := strings.Cut(out.String(), "\n\n")
	return strings.TrimRight(rest, "\n") + "\n"
}
