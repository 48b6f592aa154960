package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/doctor"
)

// indent is how far a text stands under its severity.
const indent = 9

// paper is how wide texts are where there is no terminal, or a very wide one.
const paper = 80

// reportLines draws a report: what is bad first, then what wants a look.
func reportLines(s cli.Screen, r *doctor.Report, all bool) []string {
	d := drawing{screen: s, width: paper}
	if width, _ := s.Size(); width > 0 {
		d.width = min(width, paper)
	}
	d.report(r, all)
	return d.lines
}

func (d *drawing) report(r *doctor.Report, all bool) {
	d.add(d.wrap(fmt.Sprintf("PostgreSQL %s, database %s, as %s", r.Version, r.Database, r.Role), 0, cli.Plain)...)
	d.add("")
	d.findings(r, doctor.Weakens, "WEAKENS", cli.Bad)
	d.failed(r)
	d.findings(r, doctor.Note, "NOTE", cli.Warn)
	d.unseen(r)
	if all {
		d.healthy(r)
	}
	d.add(d.wrap(summary(r), 0, cli.Plain)...)
}

type drawing struct {
	screen cli.Screen
	width  int
	lines  []string
}

func (d *drawing) add(lines ...string) { d.lines = append(d.lines, lines...) }

func (d *drawing) findings(r *doctor.Report, severity doctor.Severity, title string, style cli.Style) {
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if f.Severity == severity {
				d.item(title, style, result.Check+": "+f.Object, f.Text, f.Remedy)
			}
		}
	}
}

func (d *drawing) failed(r *doctor.Report) {
	for _, result := range r.Results {
		if result.Failed != "" {
			d.item("FAILED", cli.Bad, result.Check+": "+result.Looks, "It could not be looked at: "+result.Failed+".", nil)
		}
	}
}

// unseen draws what the same grants would help together.
func (d *drawing) unseen(r *doctor.Report) {
	type group struct {
		checks []string
		doctor.Unseen
	}
	var groups []*group
	for _, result := range r.Results {
		for _, u := range result.Unseen {
			i := slices.IndexFunc(groups, func(g *group) bool { return g.Text == u.Text && slices.Equal(g.Grants, u.Grants) })
			if i < 0 {
				i = len(groups)
				groups = append(groups, &group{Unseen: u})
			}
			groups[i].checks = append(groups[i].checks, result.Check)
		}
	}
	for _, g := range groups {
		d.item("UNSEEN", cli.Warn, strings.Join(g.checks, ", "), g.Text+".", g.Grants)
	}
}

func (d *drawing) healthy(r *doctor.Report) {
	for _, result := range r.Results {
		title, style, more := "OK", cli.Good, ""
		switch {
		case result.Skipped != "":
			title, style, more = "SKIPPED", cli.Faint, " ("+result.Skipped+")"
		case len(result.Findings)+len(result.Unseen) > 0 || result.Failed != "":
			continue
		}
		d.titled(title, style, d.wrap(result.Check+": "+result.Looks+more, indent, cli.Plain))
	}
	d.add("")
}

// item draws one thing with its remedy, whose lines are never broken: they are for
// copying.
func (d *drawing) item(title string, style cli.Style, head, text string, remedy []string) {
	d.titled(title, style, d.wrap(head, indent, cli.Bold))
	d.add(d.wrap(text, indent, cli.Plain)...)
	for _, line := range remedy {
		of := cli.Plain
		if strings.HasPrefix(line, "--") {
			of = cli.Faint
		}
		d.add(strings.Repeat(" ", indent+2) + d.screen.Paint(cli.Printable(line), of))
	}
	d.add("")
}

// titled puts a title into the indent of the first of lines.
func (d *drawing) titled(title string, style cli.Style, lines []string) {
	blank := strings.Repeat(" ", indent-len(title))
	lines[0] = d.screen.Paint(title, style) + blank + strings.TrimPrefix(lines[0], strings.Repeat(" ", indent))
	d.add(lines...)
}

// unit is a number's, which stays on its line.
var unit = regexp.MustCompile(`(\d) (s|min|h|d|%)\b`)

// noBreak stands for a blank where no line ends; a printable text has none.
const noBreak = "\u00a0"

// wrap breaks a text between words, and a word that is too long where it must.
func (d *drawing) wrap(text string, indent int, style cli.Style) (lines []string) {
	room := max(d.width-indent, 1)
	line := ""
	flush := func() {
		lines = append(lines, strings.Repeat(" ", indent)+d.screen.Paint(strings.ReplaceAll(line, noBreak, " "), style))
		line = ""
	}
	for word := range strings.SplitSeq(unit.ReplaceAllString(cli.Printable(text), "$1"+noBreak+"$2"), " ") {
		if word == "" {
			continue
		}
		if line != "" && cli.Width(line)+1+cli.Width(word) > room {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
		for cli.Width(line) > room {
			head := fitting(line, room)
			rest := line[len(head):]
			line = head
			flush()
			line = rest
		}
	}
	flush()
	return lines
}

// fitting is as much of s as takes at most room columns, and at least a character.
func fitting(s string, room int) string {
	end := 0
	for i, r := range s {
		next := i + utf8.RuneLen(r)
		if end > 0 && cli.Width(s[:next]) > room {
			break
		}
		end = next
	}
	return s[:end]
}

// summary is the last line.
func summary(r *doctor.Report) string {
	weakens, notes := r.Count(doctor.Weakens), r.Count(doctor.Note)
	var parts []string
	switch weakens {
	case 0:
		parts = append(parts, "nothing weakens a promise")
	case 1:
		parts = append(parts, "1 thing weakens a promise")
	default:
		parts = append(parts, fmt.Sprintf("%d things weaken a promise", weakens))
	}
	if notes > 0 {
		parts = append(parts, counted(notes, "note", "notes"))
	}
	if n := r.Unseen(); n > 0 {
		parts = append(parts, counted(n, "check", "checks")+" saw a part only")
	}
	if n := r.Failed(); n > 0 {
		parts = append(parts, counted(n, "check", "checks")+" failed")
	}
	made := 0
	for _, result := range r.Results {
		if result.Skipped == "" {
			made++
		}
	}
	return fmt.Sprintf("%d checks: %s.", made, strings.Join(parts, ", "))
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
