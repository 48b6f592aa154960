package cli_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/cli"
)

func table() cli.Table {
	return cli.Table{
		Columns: []cli.Column{
			{Title: "NAME", Cut: true},
			{Title: "N", Right: true},
			{Title: "MORE", Extra: 1},
			{Title: "LAST", Extra: 2},
		},
		Rows: [][]cli.Cell{
			{{Text: "a name of thirty characters ..", Style: cli.Good}, {Text: "7"}, {Text: ""}, {Text: "x"}},
			{{Text: "日本"}, {Text: "1234"}, {Text: "more"}, {Text: ""}},
		},
	}
}

func TestTable_Fits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, `
NAME                               N  MORE  LAST
a name of thirty characters ..     7        x
日本                            1234  more`},
		{40, `
NAME                       N  MORE  LAST
a name of thirty char…     7        x
日本                    1234  more`},
		{30, `
NAME                   N  MORE
a name of thirty …     7
日本                1234  more`},
		{25, `
NAME                    N
a name of thirty c…     7
日本                 1234`},
		{12, `
NAME       N
a nam…     7
日本    1234`},
		{1, `
NAME  N
a n…  7
日本  …`},
	} {
		got := strings.Join(table().Lines(cli.Screen{}, c.width), "\n")
		if want := strings.TrimPrefix(c.want, "\n"); got != want {
			t.Errorf("in %d columns:\n%s\nwant\n%s", c.width, got, want)
		}
	}
}

func TestTable_ColoursOnlyWhereThereAreSome(t *testing.T) {
	t.Parallel()
	if got := strings.Join(table().Lines(cli.Screen{}, 0), ""); strings.Contains(got, "\x1b") {
		t.Errorf("%q has colours", got)
	}
	got := table().Lines(cli.Screen{Colour: true}, 12)
	if want := "\x1b[32ma nam…\x1b[0m     7"; got[1] != want {
		t.Errorf("line is %q, want %q", got[1], want)
	}
}

func TestTable_AnEmptyNumberIsAsWideAsAnyOther(t *testing.T) {
	t.Parallel()
	table := cli.Table{
		Columns: []cli.Column{{Title: "ROW"}, {Title: "FIRST", Right: true}, {Title: "SECOND", Right: true}},
		Rows:    [][]cli.Cell{{{Text: "a"}, {}, {Text: "2"}}},
	}
	got := strings.Join(table.Lines(cli.Screen{}, 0), "\n")
	if want := "ROW  FIRST  SECOND\na                2"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
