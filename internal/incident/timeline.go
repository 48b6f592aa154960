package incident

import (
	"fmt"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
)

// timeline prints what happens when, a column for each importer and one for the
// database, in 80 columns.
type timeline struct {
	out     cli.Screen
	start   time.Time
	stopped bool // importer A: its column shows it
}

// cell is what stands in a column, and how it looks.
type cell struct {
	text  string
	style cli.Style
}

const (
	timeWidth = 8
	cellWidth = 22
)

func newTimeline(out cli.Screen) *timeline {
	t := &timeline{out: out, start: time.Now()}
	t.row("time", [3]cell{{"importer A", cli.Bold}, {"importer B", cli.Bold}, {"the database", cli.Bold}})
	t.row("--------", [3]cell{{text: "----------"}, {text: "----------"}, {text: "------------"}})
	return t
}

// event prints what an importer did, and what the database did about it.
func (t *timeline) event(who string, does, database cell) {
	cells := [3]cell{does, {}, database}
	if who != "A" {
		cells = [3]cell{{}, does, database}
		if t.stopped {
			cells[0] = cell{":", cli.Warn}
		}
	}
	t.row(fmt.Sprintf("%+.2f s", time.Since(t.start).Seconds()), cells)
}

// row prints cells side by side, each broken into as many lines as it needs.
func (t *timeline) row(at string, cells [3]cell) {
	var columns [3][]string
	height := 0
	for i, c := range cells {
		columns[i] = wrap(c.text, cellWidth)
		height = max(height, len(columns[i]))
	}
	for n := range height {
		var line strings.Builder
		fmt.Fprintf(&line, "%*s", timeWidth, at)
		blank := 2
		for i, c := range columns {
			if n >= len(c) {
				blank += cellWidth + 2
				continue
			}
			line.WriteString(strings.Repeat(" ", blank) + t.out.Paint(c[n], cells[i].style))
			blank = cellWidth - len(c[n]) + 2
		}
		fmt.Fprintln(t.out.W, line.String())
		at = ""
	}
}

// wrap breaks text at spaces.
func wrap(text string, width int) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
