package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Screen is where output goes, and what can be done there.
type Screen struct {
	W io.Writer
	// Terminal says that lines can be redrawn.
	Terminal bool
	// Colour says that text may have a colour: on a terminal, unless NO_COLOR is set.
	Colour bool
	file   *os.File
}

// ScreenOf looks at w. Only a terminal that can move its cursor counts as one.
func ScreenOf(w io.Writer) Screen {
	s := Screen{W: w}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return s
	}
	s.file = file
	s.Terminal = os.Getenv("TERM") != "dumb"
	s.Colour = s.Terminal && os.Getenv("NO_COLOR") == ""
	return s
}

// Size is the terminal's size now, in columns and lines; 0 and 0 where there is none,
// or it doesn't say.
func (s Screen) Size() (width, height int) {
	if s.file == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// Style is how a text looks where there are colours.
type Style string

// Styles, as parameters of the terminal's SGR sequence.
const (
	Plain Style = ""
	Bold  Style = "1"
	Faint Style = "2"
	Good  Style = "32" // green
	Warn  Style = "33" // yellow
	Bad   Style = "31" // red
)

// Paint gives a text a style, where there are colours.
func (s Screen) Paint(text string, style Style) string {
	if !s.Colour || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}
