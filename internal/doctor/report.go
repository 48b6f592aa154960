package doctor

import "strings"

// Severity says how bad a finding is.
type Severity string

// Severities.
const (
	// Weakens is something that takes away from a promise of Gatepost's.
	Weakens Severity = "weakens"
	// Note is something that costs time or room, or wants a look.
	Note Severity = "note"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Severity Severity
	Object   string // what it is about: a table, a setting, a lease, a role
	Text     string // what it is and what comes of it
	// Remedy is SQL or commands, a line each; a comment begins with "--": see Step. What can't be
	// known here is in capitals.
	Remedy []string
}

// Kind says what a line of a remedy is.
type Kind string

// Kinds.
const (
	SQL   Kind = "sql"   // statements, for psql
	Shell Kind = "shell" // a command
	Text  Kind = "text"  // what people have to know, to do or to choose
)

// Step takes a line of a remedy apart: what it is, and its text, without the sign of a
// comment. A statement ends with a semicolon, and what begins with "--" is for people.
func Step(line string) (Kind, string) {
	text, comment := strings.CutPrefix(line, "-- ")
	switch {
	case comment:
		return Text, text
	case strings.HasSuffix(line, ";"):
		return SQL, line
	default:
		return Shell, line
	}
}

// Unseen is something that this role could not look at.
type Unseen struct {
	Text   string
	Grants []string // the statements that would help
}

// Result is what came of one check. It found nothing when the rest is empty.
type Result struct {
	Check    string // its id
	Looks    string // what it looks at
	Findings []Finding
	Unseen   []Unseen
	Failed   string // why it could not be made
	Skipped  string // why it was not made: it has no meaning here
}

// Report is what came of all checks.
type Report struct {
	Version  string // the server's
	Database string
	Role     string
	Standby  bool
	Results  []Result
}

// Count counts the findings of a severity.
func (r *Report) Count(s Severity) (n int) {
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if f.Severity == s {
				n++
			}
		}
	}
	return n
}

// Failed counts the checks that could not be made.
func (r *Report) Failed() (n int) {
	for _, result := range r.Results {
		if result.Failed != "" {
			n++
		}
	}
	return n
}

// Unseen counts the checks that could look at a part only, or at nothing.
func (r *Report) Unseen() (n int) {
	for _, result := range r.Results {
		if len(result.Unseen) > 0 {
			n++
		}
	}
	return n
}
