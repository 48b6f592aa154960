package doctor

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
	// Remedy is SQL or commands, a line each; a comment begins with "--". What can't be
	// known here is in capitals.
	Remedy []string
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
