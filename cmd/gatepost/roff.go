package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPage is the manual page of a command, in the macros of man(7). The package for this
// that cobra has would bring a Markdown parser and YAML into the module, for text that
// is neither.
func manPage(cmd *cobra.Command) string {
	var p page
	p.line(`.\" Written by "gatepost man". Don't edit it: edit the command's help.`)
	b := thisBuild()
	date, _, _ := strings.Cut(b.RevisionAt, "T")
	p.line(".TH %s 1 %s %s \"Gatepost manual\"", quoted(strings.ToUpper(pageName(cmd))), quoted(date), quoted("gatepost "+b.Version))
	p.section("NAME")
	p.line(`%s \- %s`, roff(pageName(cmd)), roff(cmd.Short))
	p.section("SYNOPSIS")
	p.line(".B %s", roff(cmd.CommandPath()))
	p.text(synopsis(cmd))
	p.section("DESCRIPTION")
	p.prose(longText(cmd))
	p.commands(documented(cmd))
	p.flags("OPTIONS", cmd.NonInheritedFlags())
	p.flags("OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.verbatim(strings.Split(cmd.Example, "\n"))
	}
	p.seeAlso(cmd)
	return p.b.String()
}

func longText(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// synopsis is what follows a command's name.
func synopsis(cmd *cobra.Command) string {
	if len(documented(cmd)) > 0 {
		return "COMMAND [flags]"
	}
	return strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath()))
}

// page is a manual page that is being written.
type page struct{ b strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }
func (p *page) section(title string)            { p.line(".SH %s", quoted(title)) }

// text writes lines of running text; nothing for an empty text.
func (p *page) text(text string) {
	if text != "" {
		p.line("%s", roff(text))
	}
}

// prose writes paragraphs. One that is indented is kept as it stands.
func (p *page) prose(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(paragraph, "\n")
		if strings.HasPrefix(lines[0], " ") || strings.HasPrefix(lines[0], "\t") {
			p.line(".PP")
			p.verbatim(lines)
			continue
		}
		if i > 0 {
			p.line(".PP")
		}
		p.text(strings.Join(lines, "\n"))
	}
}

// verbatim keeps lines and their spaces.
func (p *page) verbatim(lines []string) {
	p.line(".nf")
	p.text(strings.Join(lines, "\n"))
	p.line(".fi")
}

func (p *page) commands(subs []*cobra.Command) {
	if len(subs) == 0 {
		return
	}
	p.section("COMMANDS")
	for _, sub := range subs {
		p.line(".TP")
		p.line(".BR %s (1)", roff(pageName(sub)))
		p.text(sub.Short)
	}
}

func (p *page) flags(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.section(title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		p.line(".TP")
		p.line("%s", flagText(f, name))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		p.text(usage)
	})
}

// flagText is "-a, --all", or "--prefix string".
func flagText(f *pflag.Flag, argument string) string {
	text := `\fB` + roff("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		text = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + text
	}
	if argument != "" {
		text += ` \fI` + roff(argument) + `\fR`
	}
	return text
}

func (p *page) seeAlso(cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, pageName(cmd.Parent()))
		for _, sibling := range documented(cmd.Parent()) {
			if sibling != cmd {
				pages = append(pages, pageName(sibling))
			}
		}
	}
	if len(pages) == 0 {
		return
	}
	p.section("SEE ALSO")
	for i, name := range pages {
		comma := ","
		if i == len(pages)-1 {
			comma = ""
		}
		p.line(".BR %s (1)%s", roff(name), comma)
	}
}

// roff escapes a text: what begins a line like a request, hyphens that are to be
// typed, and backslashes.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "\\(ga", "'", "\\(aq").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// quoted is an argument of a request.
func quoted(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
