package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
)

// field is one line of a portrait, or more.
type field struct {
	name, text string
	style      cli.Style
}

// lines draws the portrait.
func (p portrait) lines(s cli.Screen) []string { return draw(s, p.fields()) }

// nameWidth is the longest name of a field.
const nameWidth = 9

// draw puts the texts of fields beside their names, and breaks what is wider than the
// screen.
func draw(s cli.Screen, fields []field) (lines []string) {
	width, _ := s.Size()
	if width > 0 {
		width = max(1, width-nameWidth-1)
	}
	for _, f := range fields {
		title := s.Paint(fmt.Sprintf("%-*s", nameWidth, f.name), cli.Bold)
		for text := range strings.SplitSeq(f.text, "\n") {
			for _, line := range cli.Wrap(text, width) {
				lines = append(lines, title+" "+s.Paint(line, f.style))
				title = strings.Repeat(" ", nameWidth)
			}
		}
	}
	return lines
}

func (p portrait) fields() []field {
	state, style := p.state()
	fields := []field{{"NAME", cli.Printable(p.Name), cli.Plain}, {"STATE", state, style}}
	if p.Holder != "" {
		fields = append(fields, field{"HOLDER", cli.Printable(p.Holder), cli.Plain})
	}
	fields = append(
		fields,
		field{"TOKEN", tokenText(p.Token), cli.Plain},
		field{"TERM", strconv.FormatInt(p.Transitions, 10), cli.Plain},
		field{"ACQUIRED", p.moment(p.AcquiredAt), cli.Plain},
	)
	if p.Holder != "" {
		fields = append(fields, field{"RENEWED", p.moment(p.RenewedAt), cli.Plain})
	}
	fields = append(fields, field{"WAITERS", p.waitersText(), waiting(p.waiters)})
	if len(p.lockers) > 0 {
		fields = append(fields, field{"LOCKED BY", p.lockersText(), cli.Warn})
	}
	if len(p.Data) > 0 {
		fields = append(fields, field{"DATA", indented(p.Data), cli.Plain})
	}
	return fields
}

func (p portrait) state() (string, cli.Style) {
	left, style := p.left(cli.Duration)
	switch {
	case p.Held:
		return "held; expires " + left + " unless renewed", style
	case p.lapsed():
		return left + ": whoever wants it takes it", style
	case p.detail.ReservedUntil.After(p.now()):
		until := cli.Duration(p.detail.ReservedUntil.Sub(p.now()))
		return fmt.Sprintf("kept for %s for %s", cli.Printable(p.detail.ReservedFor), until), cli.Warn
	default:
		return fmt.Sprintf("free for %s", cli.Duration(p.Left)), style
	}
}

// moment is a time and how long ago it was by the database's clock.
func (p portrait) moment(t time.Time) string {
	return fmt.Sprintf("%s, %s ago", cli.Clock(t), cli.Duration(p.now().Sub(t)))
}

func (p portrait) waitersText() string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(len(p.waiting)))
	for _, w := range p.waiting {
		fmt.Fprintf(&b, "\n%s, for %s", cli.Printable(w.Holder), cli.Duration(w.Waited))
	}
	return b.String()
}

func (p portrait) lockersText() string {
	lines := make([]string, len(p.lockers))
	for i, l := range p.lockers {
		lines[i] = cli.Printable(l.String()) + lockerState(l)
	}
	return strings.Join(lines, "\n")
}

func lockerState(l operator.Locker) string {
	switch {
	case l.State == "" && l.GID == "":
		return ""
	case l.GID != "":
		return fmt.Sprintf(": for %s; it ends by COMMIT PREPARED or ROLLBACK PREPARED", cli.Duration(l.Open))
	case l.State == "active" && l.WaitEvent == "ClientRead":
		return fmt.Sprintf(": for %s, and for %s in a COPY whose client sends nothing", cli.Duration(l.Open), cli.Duration(l.InState))
	default:
		return fmt.Sprintf(": for %s, %s for %s", cli.Duration(l.Open), l.State, cli.Duration(l.InState))
	}
}

func indented(data json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return cli.Printable(string(data))
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = cli.Printable(line)
	}
	return strings.Join(lines, "\n")
}
