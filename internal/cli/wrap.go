package cli

import "strings"

// hanging is how much further in a line begins that goes on with the one above.
const hanging = 2

// Wrap breaks a line that is wider than most columns, at a space where there is one, and
// else anywhere; what goes on is indented. With most 0 nothing is too wide.
func Wrap(line string, most int) (lines []string) {
	indent := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " "))+hanging)
	if len(indent) > most/2 {
		indent = ""
	}
	for most > 0 && Width(line) > most {
		head, rest := split(line, most)
		if rest == "" { // blanks were too wide
			return append(lines, head)
		}
		lines = append(lines, head)
		line = indent + rest
	}
	return append(lines, line)
}

// Wrapped is a text as lines that fit the screen, painted.
func (s Screen) Wrapped(text string, style Style) []string {
	width, _ := s.Size()
	lines := Wrap(text, width)
	for i := range lines {
		lines[i] = s.Paint(lines[i], style)
	}
	return lines
}

// split takes from a line what fits: up to its last space, if that leaves anything but an
// indent, and without that space.
func split(line string, most int) (head, rest string) {
	fits, width := 0, 0
	for i, r := range line {
		if width += runeWidth(r); width > most && i > 0 {
			break
		}
		fits = i + len(string(r))
	}
	if at := strings.LastIndexByte(line[:min(fits+1, len(line))], ' '); at > 0 && strings.TrimSpace(line[:at]) != "" {
		return strings.TrimRight(line[:at], " "), strings.TrimLeft(line[at:], " ")
	}
	return line[:fits], line[fits:]
}
