package csvfile

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// maxName is how many bytes of an identifier PostgreSQL keeps (NAMEDATALEN - 1).
const maxName = 63

// ownPrefix starts the names of the key columns that an import adds to a table. Those never
// end in _ and a number, so a name with a number behind it is free.
const ownPrefix = "gatepost_"

// systemColumns are the names that every PostgreSQL table has already.
var systemColumns = map[string]bool{
	"ctid": true, "xmin": true, "xmax": true, "cmin": true, "cmax": true, "tableoid": true,
}

// Columns makes the column names of a PostgreSQL table from a header, one for each field and
// in its order. The names are to be quoted in SQL; they are compared exactly.
//
// Each name is unique, has 1 to 63 bytes, no spaces around it, and isn't a system column. A
// name that needs no change but trimming is kept, and goes before made-up ones: of a,a,a_2 the
// second becomes a_3. An empty name becomes column_N. A longer name is cut between two
// characters. A duplicate, a system column and a name that starts with gatepost_ get _2, or
// the next number that is free.
//
// notes has one line for each column whose name isn't the header's, in the order of the columns,
// for people. A header of more columns than a table can have is the caller's to refuse.
func Columns(header []Field) (names []string, notes []string) {
	n := &namer{
		names: make([]string, len(header)),
		owner: make(map[string]int, len(header)),
		next:  make(map[string]int),
	}
	for i, f := range header {
		n.keep(i, strings.TrimSpace(f.Value))
	}
	for i, f := range header {
		why := n.settle(i, strings.TrimSpace(f.Value))
		if why != "" || n.names[i] != f.Value {
			notes = append(notes, n.note(i, f.Value, why))
		}
	}
	return n.names, notes
}

// namer gives names to columns, which it counts from 0.
type namer struct {
	names []string       // by column; empty while not settled
	owner map[string]int // column of each name given
	next  map[string]int // by wanted name: the next suffix to try
}

// keep gives a column its name from the header, if that can be used and is free.
func (n *namer) keep(i int, name string) {
	if name == "" || len(name) > maxName || reserved(name) {
		return
	}
	n.take(i, name)
}

// settle gives a name to a column that has none yet, and returns why it couldn't be kept.
func (n *namer) settle(i int, name string) (why string) {
	switch {
	case n.names[i] != "":
		return ""
	case name == "":
		n.takeNear(i, fmt.Sprintf("column_%d", i+1))
		return "has no name"
	case reserved(name):
		n.suffix(i, name)
		return "has a reserved name"
	case len(name) > maxName:
		n.takeNear(i, cut(name, maxName))
		return fmt.Sprintf("has a name over %d bytes", maxName)
	}
	first := n.owner[name]
	n.suffix(i, name)
	return fmt.Sprintf("has the name of column %d", first+1)
}

// takeNear takes name, or name with a number if it is taken.
func (n *namer) takeNear(i int, name string) {
	if !n.take(i, name) {
		n.suffix(i, name)
	}
}

// suffix takes name with the first number from 2 that is free. The numbers tried before are
// remembered, so that a thousand equal names don't cost a million tries.
func (n *namer) suffix(i int, name string) {
	for k := max(n.next[name], 2); ; k++ {
		number := "_" + strconv.Itoa(k)
		if n.take(i, cut(name, maxName-len(number))+number) {
			n.next[name] = k + 1
			return
		}
	}
}

// take gives the name to a column, unless another column has it.
func (n *namer) take(i int, name string) bool {
	if _, taken := n.owner[name]; taken {
		return false
	}
	n.owner[name] = i
	n.names[i] = name
	return true
}

// note is the line for people about a column whose name was changed.
func (n *namer) note(i int, was, why string) string {
	switch {
	case strings.TrimSpace(was) == "":
		return fmt.Sprintf("column %d %s: stored as %s", i+1, why, n.names[i])
	case why == "":
		why = "has spaces around its name"
	}
	return fmt.Sprintf("column %d %s %s: stored as %q", i+1, excerpt([]byte(was)), why, n.names[i])
}

func reserved(name string) bool {
	return systemColumns[name] || strings.HasPrefix(name, ownPrefix)
}

// cut shortens a name to at most limit bytes, between two characters and without spaces at
// the end.
func cut(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return strings.TrimRightFunc(name[:boundary(name, limit)], unicode.IsSpace)
}
