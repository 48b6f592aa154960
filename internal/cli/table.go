package cli

import (
	"fmt"
	"slices"
	"strings"
)

// Table is rows of cells under titles.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// Column is one column of a Table.
type Column struct {
	Title string
	Right bool // numbers
	// Cut says that long cells may be cut where the table doesn't fit.
	Cut bool
	// Extra says that the column may be left out where the table doesn't fit: the
	// highest goes first. 0 stays.
	Extra int
}

// Cell is a printable text and how it looks.
type Cell struct {
	Text  string
	Style Style
}

const (
	gap = 2
	// A column is not cut below cutTo columns while another one can be left out, and
	// never below cutLeast.
	cutTo    = 16
	cutLeast = 4
)

// Print writes the table, fitted to the screen's width where it has one.
func (t Table) Print(s Screen) error {
	width, _ := s.Size()
	_, err := fmt.Fprintln(s.W, strings.Join(t.Lines(s, width), "\n"))
	return err
}

// Lines draws the table in at most width columns, or in as many as it takes when width
// is 0.
func (t Table) Lines(s Screen, width int) []string {
	widths := t.fit(width)
	header := make([]Cell, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = Cell{c.Title, Bold}
	}
	lines := make([]string, 0, len(t.Rows)+1)
	for _, row := range append([][]Cell{header}, t.Rows...) {
		lines = append(lines, t.line(s, row, widths))
	}
	return lines
}

// line draws one row. A column of no width is left out.
func (t Table) line(s Screen, row []Cell, widths []int) string {
	var b strings.Builder
	pending := 0 // blanks, so that no line ends with some
	for i, cell := range row {
		if widths[i] == 0 {
			continue
		}
		text := Cut(cell.Text, widths[i])
		if text == "" {
			pending += widths[i] + gap
			continue
		}
		blank := widths[i] - Width(text)
		if t.Columns[i].Right {
			pending += blank
			blank = 0
		}
		b.WriteString(strings.Repeat(" ", pending))
		b.WriteString(s.Paint(text, cell.Style))
		pending = blank + gap
	}
	return b.String()
}

// fit finds how wide each column is drawn, 0 for one that is left out: first long
// cells are cut, then columns are left out, and at last the cells are cut more.
func (t Table) fit(width int) []int {
	natural := t.natural()
	widths := slices.Clone(natural)
	if width == 0 {
		return widths
	}
	for extra := t.mostExtra(); !t.cut(widths, width, cutTo) && extra > 0; extra-- {
		for i, c := range t.Columns {
			if c.Extra >= extra {
				natural[i] = 0
			}
		}
		copy(widths, natural)
	}
	if !t.cut(widths, width, cutLeast) {
		last := len(widths) - 1
		for last > 0 && widths[last] == 0 {
			last--
		}
		widths[last] = max(1, widths[last]-(total(widths)-width))
	}
	return widths
}

func (t Table) natural() []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = Width(c.Title)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], Width(row[i].Text))
		}
	}
	return widths
}

func (t Table) mostExtra() (most int) {
	for _, c := range t.Columns {
		most = max(most, c.Extra)
	}
	return most
}

// cut takes columns from the widest cell that may be cut, down to least, until the
// table fits, and says whether it does.
func (t Table) cut(widths []int, width, least int) bool {
	for total(widths) > width {
		widest := -1
		for i, c := range t.Columns {
			if c.Cut && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

func total(widths []int) int {
	sum := -gap
	for _, w := range widths {
		if w > 0 {
			sum += w + gap
		}
	}
	return sum
}
