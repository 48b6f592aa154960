package cli

import (
	"fmt"
	"regexp"
	"strings"
)

// Painter redraws lines in place on a terminal: no alternate screen, so that the last
// ones stay when the program ends, and what was above stays as it was.
type Painter struct {
	Screen Screen
	drawn  []string
}

// Draw replaces what was drawn before. What doesn't fit the terminal's height is left
// out, and told.
func (p *Painter) Draw(lines []string) error {
	width, height := p.Screen.Size()
	if room := height - 1; room > 1 && len(lines) > room { // the cursor stands on the last line
		more := len(lines) - room + 1
		lines = append(lines[:room-1:room-1], p.Screen.Paint(fmt.Sprintf("… and %d more", more), Faint))
	}
	var b strings.Builder
	if up := p.rows(width); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	p.drawn = lines
	_, err := fmt.Fprint(p.Screen.W, b.String())
	return err
}

// rows is how many rows the drawn lines take now: a terminal that has become narrower
// since has wrapped them.
func (p *Painter) rows(width int) int {
	rows := 0
	for _, line := range p.drawn {
		rows++
		if width > 0 {
			rows += max(0, paintedWidth(line)-1) / width
		}
	}
	return rows
}

// Finish leaves the cursor at the beginning of an empty line, where a ^C may stand.
func (p *Painter) Finish() { fmt.Fprint(p.Screen.W, "\r\x1b[J") }

var paint = regexp.MustCompile("\x1b\\[[0-9;]*m")

func paintedWidth(line string) int { return Width(paint.ReplaceAllString(line, "")) }

// CutPainted is Cut for a text that may have been painted.
func CutPainted(line string, most int) string {
	if most <= 0 || paintedWidth(line) <= most {
		return line
	}
	return Cut(paint.ReplaceAllString(line, ""), most) // its colour is the smaller loss
}
