package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
)

// change is what happened to a name between two looks.
type change struct {
	event event
	lease lease
	// holder is who had it before, where that says more than the lease.
	holder string
}

type event string

const (
	eventHeld     event = "held" // at the first look
	eventAcquired event = "acquired"
	eventReleased event = "released"
	eventExpired  event = "expired"
)

// changes compares two looks; before is nil at the first one.
func changes(before map[string]lease, now []lease) (all []change) {
	for _, l := range now {
		was, known := before[l.Name]
		c := change{lease: l, holder: l.Holder}
		switch {
		case l.Held && before == nil:
			c.event = eventHeld
		case l.Held && was.Token != l.Token:
			c.event = eventAcquired
		case before == nil || l.Held || (known && was.Token == l.Token && !was.Held && was.Holder == l.Holder):
			continue
		case l.lapsed():
			c.event = eventExpired
		case l.Token > 0:
			c.event = eventReleased
			if was.Token == l.Token {
				c.holder = was.Holder
			}
		default:
			continue
		}
		all = append(all, c)
	}
	return all
}

func (c change) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			Event event     `json:"event"`
			At    time.Time `json:"at"`
			leaseJSON
		}{c.event, c.at().UTC(), c.lease.json()})
	}
	_, err := fmt.Fprintf(w, "%s  %-8s  %s%s  token %d\n", cli.Clock(c.at()), c.event, cli.Printable(c.lease.Name), c.by(), c.lease.Token)
	return err
}

func (c change) by() string {
	if c.holder == "" {
		return ""
	}
	return "  by " + cli.Printable(c.holder)
}

// at is when it happened, by the database's clock.
func (c change) at() time.Time {
	switch c.event {
	case eventAcquired:
		return c.lease.AcquiredAt
	case eventReleased, eventExpired:
		return c.lease.ExpiresAt
	default:
		return c.lease.now()
	}
}
