package cli

import (
	"strings"
	"text/template"

	"github.com/spf13/cobra"
)

// helpWidth is how wide help is, on any terminal.
const helpWidth = 80

// foldHelp makes the help of a program fit helpWidth columns, however its texts are
// broken in the source.
func foldHelp(root *cobra.Command) {
	cobra.AddTemplateFuncs(template.FuncMap{"fold": fold, "hang": hang})
	root.SetHelpTemplate(`{{fold (or .Long .Short)}}
{{if or .Runnable .HasSubCommands}}
{{.UsageString}}{{end}}`)
	root.SetUsageTemplate(strings.NewReplacer(
		".FlagUsages", ".FlagUsagesWrapped 80",
		"{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", // a group only shows its help
		"{{rpad .Name .NamePadding }} {{.Short}}", "{{rpad .Name .NamePadding }} {{hang .Short .NamePadding}}",
	).Replace(root.UsageTemplate()))
}

// hang breaks what stands beside a command's name in a list, whose column is that wide.
func hang(text string, column int) string {
	const indent = 2 // of the list
	before := indent + column + 1
	return strings.ReplaceAll(wrap(text, helpWidth-before), "\n", "\n"+strings.Repeat(" ", before))
}

// fold breaks the paragraphs of a text anew where a line is too long. One that is
// indented, a table or an example, stays as it is.
func fold(text string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		if p != "" && p[0] != ' ' && p[0] != '\t' && widest(p) > helpWidth {
			paragraphs[i] = wrap(p, helpWidth)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

func widest(text string) (most int) {
	for line := range strings.SplitSeq(text, "\n") {
		most = max(most, Width(line))
	}
	return most
}

// wrap breaks a text at its spaces.
func wrap(text string, most int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch width := Width(word); {
		case column == 0:
			column = width
		case column+1+width > most:
			b.WriteString("\n")
			column = width
		default:
			b.WriteString(" ")
			column += 1 + width
		}
		b.WriteString(word)
	}
	return b.String()
}
