package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/spf13/cobra"
)

// releasedLease is what became of a release.
type releasedLease struct {
	operator.Release
	operator.Released
	now     bool // false: it was free before
	lockers []lockerEnd
}

// lockerEnd is a transaction that keeps the next holder out, and what became of it.
type lockerEnd struct {
	operator.Locker
	ending operator.Ending // empty: nothing was asked
}

func (l lockerEnd) over() bool {
	return l.ending == operator.EndingDone || l.ending == operator.EndingNone
}

func (r releasedLease) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(r.lines(), "\n"))
	return err
}

func (r releasedLease) lines() (lines []string) {
	title := fmt.Sprintf("lease %s (token %d)", cli.Printable(r.Name), r.Token)
	switch {
	case !r.now:
		lines = append(lines, fmt.Sprintf("%s was free already, for %s", title, cli.Duration(r.Held)))
	case r.Left < 0:
		lines = append(lines, fmt.Sprintf("%s is free; %s had let it expire %s ago", title, cli.Printable(r.Holder), cli.Duration(r.Left)))
	default:
		lines = append(lines, fmt.Sprintf("%s is free; %s, who had it for %s, learns of it with its next renewal or fence",
			title, cli.Printable(r.Holder), cli.Duration(r.Held)))
	}
	for _, l := range r.lockers {
		lines = append(lines, l.line())
	}
	return append(lines, r.advice()...)
}

func (l lockerEnd) line() string {
	who := cli.Printable(l.String())
	switch l.ending {
	case "":
		return "the next holder waits for " + who + lockerState(l.Locker)
	case operator.EndingByHand:
		return who + " can't be ended so: COMMIT PREPARED or ROLLBACK PREPARED does it"
	case operator.EndingHidden:
		return who + ": this role may not see or end it; use a member of pg_read_all_stats and pg_signal_backend"
	default:
		return who + ": " + string(l.ending)
	}
}

// advice says how to get rid of what is in the way.
func (r releasedLease) advice() []string {
	for _, l := range r.lockers {
		if l.ending == "" && l.GID == "" {
			return []string{fmt.Sprintf("to end it: gatepost release %s --token %d --terminate", cli.Printable(r.Name), r.Token)}
		}
	}
	return nil
}

// MarshalJSON is for programs: tokens as strings, times in RFC 3339.
func (r releasedLease) MarshalJSON() ([]byte, error) {
	out := releasedJSON{
		Name: r.Name, Token: tokenText(r.Token), Released: r.now, Holder: r.Holder,
		At: r.At.UTC(), By: r.By, Role: r.Role, Reason: r.Reason, LockedBy: []endJSON{},
	}
	for _, l := range r.lockers {
		out.LockedBy = append(out.LockedBy, endJSON{lockerJSONOf(l.Locker), l.ending, l.over()})
	}
	return json.Marshal(out)
}

type releasedJSON struct {
	Name     string    `json:"name"`
	Token    string    `json:"token"`
	Released bool      `json:"released"` // false: it was free before
	Holder   string    `json:"holder,omitempty"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Role     string    `json:"role,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	LockedBy []endJSON `json:"locked_by"`
}

type endJSON struct {
	lockerJSON
	Ending operator.Ending `json:"ending,omitempty"`
	Over   bool            `json:"over"`
}
