package handbook_test

import (
	"regexp"
	"strings"
	"testing"
)

// block is a piece of a page that runs: a fenced one of sh or sql, or a hidden one,
// which prepares what the reader has already.
type block struct {
	language string // sh or sql
	text     string
	fails    string // with this in its error; empty: it succeeds
}

var piece = regexp.MustCompile("(?ms)" +
	"^(?:<!-- fails: ([^\n]*?) -->\n)?([ ]*)```(sh|sql)\n(.*?)^[ ]*```$" +
	"|^<!-- hidden (sh|sql)\n(.*?)^-->$")

func parse(page string) []block {
	var blocks []block
	for _, m := range piece.FindAllStringSubmatch(page, -1) {
		if m[5] != "" {
			blocks = append(blocks, block{language: m[5], text: m[6]})
			continue
		}
		lines := strings.Split(m[4], "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], m[2])
		}
		blocks = append(blocks, block{language: m[3], text: strings.Join(lines, "\n"), fails: m[1]})
	}
	return blocks
}

func TestParse(t *testing.T) {
	t.Parallel()
	page := "a\n```sh\none\n```\n   ```sql\n   two\n     three\n   ```\n<!-- hidden sh\nfour\n-->\n" +
		"<!-- fails: GP001 -->\n```sql\nfive\n```\n```\nnot this\n```\n```ini\nnor this\n```\n"
	want := []block{
		{language: "sh", text: "one\n"}, {language: "sql", text: "two\n  three\n"},
		{language: "sh", text: "four\n"}, {language: "sql", text: "five\n", fails: "GP001"},
	}
	got := parse(page)
	if len(got) != len(want) {
		t.Fatalf("got %d blocks, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("block %d: got %q, want %q", i, got[i], want[i])
		}
	}
}
