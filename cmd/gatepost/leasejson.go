package main

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/gatepost/gatepost/internal/operator"
)

// leaseJSON is a lease as JSON: tokens as strings, which lose no digits in a float,
// and times in RFC 3339.
type leaseJSON struct {
	Name        string          `json:"name"`
	Held        bool            `json:"held"`
	Holder      string          `json:"holder"`
	Token       string          `json:"token"`
	Transitions int64           `json:"transitions"`
	AcquiredAt  time.Time       `json:"acquired_at"`
	RenewedAt   time.Time       `json:"renewed_at"`
	ExpiresAt   time.Time       `json:"expires_at"`
	LeftMS      int64           `json:"left_ms"`
	Waiters     int64           `json:"waiters"`
	Data        json.RawMessage `json:"data,omitempty"`
}

func (l lease) json() leaseJSON {
	return leaseJSON{
		l.Name, l.Held, l.Holder, tokenText(l.Token), l.Transitions,
		l.AcquiredAt.UTC(), l.RenewedAt.UTC(), l.ExpiresAt.UTC(), l.Left.Milliseconds(), l.waiters, l.Data,
	}
}

func (l lease) MarshalJSON() ([]byte, error) { return json.Marshal(l.json()) }

func tokenText(token int64) string { return strconv.FormatInt(token, 10) }

// portraitJSON is a lease's object with more in it.
type portraitJSON struct {
	leaseJSON
	Waiting  []waiterJSON  `json:"waiting"`
	LockedBy []lockerJSON  `json:"locked_by"`
	Reserved *reservedJSON `json:"reserved,omitempty"`
}

type waiterJSON struct {
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
}

type lockerJSON struct {
	PID         int    `json:"pid,omitempty"`
	GID         string `json:"gid,omitempty"` // of a prepared transaction
	User        string `json:"user,omitempty"`
	Application string `json:"application,omitempty"`
	Address     string `json:"address,omitempty"`
	State       string `json:"state,omitempty"`
	WaitEvent   string `json:"wait_event,omitempty"`
	OpenMS      int64  `json:"open_ms"`
	InStateMS   int64  `json:"in_state_ms"`
}

func lockerJSONOf(l operator.Locker) lockerJSON {
	return lockerJSON{
		l.PID, l.GID, l.User, l.Application, l.Address, l.State, l.WaitEvent, l.Open.Milliseconds(), l.InState.Milliseconds(),
	}
}

type reservedJSON struct {
	For   string    `json:"for"`
	Until time.Time `json:"until"`
}

func (p portrait) MarshalJSON() ([]byte, error) {
	out := portraitJSON{leaseJSON: p.json(), Waiting: []waiterJSON{}, LockedBy: []lockerJSON{}}
	for _, w := range p.waiting {
		out.Waiting = append(out.Waiting, waiterJSON{w.Holder, w.Since.UTC()})
	}
	for _, l := range p.lockers {
		out.LockedBy = append(out.LockedBy, lockerJSONOf(l))
	}
	d := p.detail
	if d.ReservedUntil.After(p.now()) {
		out.Reserved = &reservedJSON{d.ReservedFor, d.ReservedUntil.UTC()}
	}
	return json.Marshal(out)
}
