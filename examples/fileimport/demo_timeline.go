package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// timeline prints what happens when, a column for each importer and one for the
// database, in 80 columns.
type timeline struct {
	w     io.Writer
	start time.Time
}

const (
	timeWidth = 8
	cellWidth = 22
)

func newTimeline(w io.Writer) *timeline {
	t := &timeline{w: w, start: time.Now()}
	t.row("time", [3]string{"importer A", "importer B", "the database"})
	t.row("--------", [3]string{"----------", "----------", "------------"})
	return t
}

// event prints what an importer did, and what the database did about it.
func (t *timeline) event(who, does, database string) {
	cells := [3]string{does, "", database}
	if who == "B" {
		cells = [3]string{"", does, database}
	}
	t.row(fmt.Sprintf("%+.2f s", time.Since(t.start).Seconds()), cells)
}

// row prints cells side by side, each broken into as many lines as it needs.
func (t *timeline) row(at string, cells [3]string) {
	var columns [3][]string
	height := 0
	for i, cell := range cells {
		columns[i] = wrap(cell, cellWidth)
		height = max(height, len(columns[i]))
	}
	for n := range height {
		line := fmt.Sprintf("%*s", timeWidth, at)
		for _, c := range columns {
			text := ""
			if n < len(c) {
				text = c[n]
			}
			line += fmt.Sprintf("  %-*s", cellWidth, text)
		}
		fmt.Fprintln(t.w, strings.TrimRight(line, " "))
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

// number writes 12000 as 12,000.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
