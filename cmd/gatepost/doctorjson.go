package main

import "github.com/gatepost/gatepost/internal/doctor"

// doctorJSON is a report as JSON. No list in it is ever null.
type doctorJSON struct {
	ServerVersion string      `json:"server_version"`
	Database      string      `json:"database"`
	Role          string      `json:"role"`
	Standby       bool        `json:"standby"`
	Weakens       int         `json:"weakens"`
	Notes         int         `json:"notes"`
	Unseen        int         `json:"unseen"`
	Failed        int         `json:"failed"`
	Checks        []checkJSON `json:"checks"`
}

type checkJSON struct {
	Check    string        `json:"check"`
	LooksAt  string        `json:"looks_at"`
	Findings []findingJSON `json:"findings"`
	Unseen   []unseenJSON  `json:"unseen"`
	Failed   string        `json:"failed,omitempty"`
	Skipped  string        `json:"skipped,omitempty"`
}

type findingJSON struct {
	Severity string       `json:"severity"` // weakens, note
	Object   string       `json:"object"`
	Finding  string       `json:"finding"`
	Remedy   []remedyJSON `json:"remedy"`
}

type remedyJSON struct {
	Kind string `json:"kind"` // sql, shell, text
	Text string `json:"text"`
}

type unseenJSON struct {
	What   string   `json:"what"`
	Grants []string `json:"grants"`
}

func reportJSON(r *doctor.Report) doctorJSON {
	out := doctorJSON{
		r.Version, r.Database, r.Role, r.Standby,
		r.Count(doctor.Weakens), r.Count(doctor.Note), r.Unseen(), r.Failed(),
		[]checkJSON{},
	}
	for _, result := range r.Results {
		c := checkJSON{result.Check, result.Looks, []findingJSON{}, []unseenJSON{}, result.Failed, result.Skipped}
		for _, f := range result.Findings {
			c.Findings = append(c.Findings, findingJSON{string(f.Severity), f.Object, f.Text, remediesJSON(f.Remedy)})
		}
		for _, u := range result.Unseen {
			c.Unseen = append(c.Unseen, unseenJSON{u.Text, append([]string{}, u.Grants...)})
		}
		out.Checks = append(out.Checks, c)
	}
	return out
}

func remediesJSON(remedy []string) []remedyJSON {
	steps := []remedyJSON{}
	for _, line := range remedy {
		kind, text := doctor.Step(line)
		steps = append(steps, remedyJSON{string(kind), text})
	}
	return steps
}
