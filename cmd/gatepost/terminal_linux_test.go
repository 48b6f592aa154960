package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal, and what can be seen on it.
type terminal struct {
	t             *testing.T
	master, slave *os.File

	mu     sync.Mutex
	screen *screen
	raw    strings.Builder
}

// newTerminal opens one; it needs no library: it is two ioctls on Linux.
func newTerminal(t *testing.T, columns, lines int) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, master: master, slave: slave, screen: newScreen(columns, lines)}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(lines)}); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(term.read)
	t.Cleanup(func() {
		slave.Close()
		reading.Wait() // the master's end comes when no process has the terminal open
		master.Close()
	})
	return term
}

func (term *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := term.master.Read(buf)
		term.mu.Lock()
		term.raw.Write(buf[:n])
		term.screen.write(string(buf[:n]))
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// start runs a command in a session of its own, with the terminal as the controlling
// one, as a shell would.
func (term *terminal) start(cmd *exec.Cmd) {
	term.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		term.t.Fatal(err)
	}
	term.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// write types something.
func (term *terminal) write(text string) {
	term.t.Helper()
	if _, err := io.WriteString(term.master, text); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

func (term *terminal) bytes() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.raw.String()
}

// shows waits until a text can be seen.
func (term *terminal) shows(text string) {
	term.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(term.text(), text) {
		if time.Now().After(deadline) {
			term.t.Fatalf("%q is not to be seen; the screen:\n%s", text, term.text())
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polls a state
	}
}

// screen is what a terminal shows, of one that knows what is used here: lines that
// wrap, CR, LF, cursor up, and erasing to the end of the line and of the screen.
type screen struct {
	columns, lines int
	cells          [][]rune
	row, column    int
	escape         string // one that has not ended yet
}

func newScreen(columns, lines int) *screen {
	s := &screen{columns: columns, lines: lines}
	for range lines {
		s.cells = append(s.cells, nil)
	}
	return s
}

func (s *screen) write(text string) {
	for _, r := range text {
		switch {
		case s.escape != "" || r == '\x1b':
			s.escape += string(r)
			if len(s.escape) > 2 && r >= '@' && r <= '~' {
				s.act(s.escape)
				s.escape = ""
			}
		case r == '\r':
			s.column = 0
		case r == '\n':
			s.down()
		default:
			if s.column == s.columns {
				s.column = 0
				s.down()
			}
			s.put(r)
		}
	}
}

func (s *screen) put(r rune) {
	line := s.cells[s.row]
	for len(line) <= s.column {
		line = append(line, ' ')
	}
	line[s.column] = r
	s.cells[s.row] = line
	s.column++
}

func (s *screen) down() {
	if s.row++; s.row == s.lines {
		s.row--
		s.cells = append(s.cells[1:], nil)
	}
}

func (s *screen) act(escape string) {
	switch command := escape[len(escape)-1]; command {
	case 'A':
		n := 1
		_, _ = fmt.Sscanf(escape, "\x1b[%dA", &n)
		s.row = max(0, s.row-n)
	case 'K', 'J':
		s.cells[s.row] = s.cells[s.row][:min(len(s.cells[s.row]), s.column)]
		for below := s.row + 1; command == 'J' && below < s.lines; below++ {
			s.cells[below] = nil
		}
	case 'm':
	default:
		s.put('�') // not to be seen in a test that passes
	}
}

func (s *screen) String() string {
	lines := make([]string, len(s.cells))
	for i, line := range s.cells {
		lines[i] = strings.TrimRight(string(line), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
