package main

import (
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
)

// keyPrinter prints keys one after another.
type keyPrinter interface {
	print(k operator.Key) error
	end() error
}

// keyTablePrinter prints tables of pageSize rows. The titles are above the first.
type keyTablePrinter struct {
	screen  cli.Screen
	full    bool
	rows    [][]cli.Cell
	printed bool
}

func (p *keyTablePrinter) print(k operator.Key) error {
	if len(p.rows) == pageSize {
		if err := p.end(); err != nil {
			return err
		}
	}
	expires := "in " + cli.Coarse(k.Left)
	if k.Left <= 0 {
		expires = "expired " + cli.Coarse(k.Left) + " ago"
	}
	p.rows = append(p.rows, []cli.Cell{
		{Text: cli.Printable(k.Operation)},
		{Text: cli.Printable(string(k.Scope))},
		{Text: keyText(k.Key.Key, p.full)},
		{Text: string(k.State), Style: stateStyle(k)},
		{Text: strconv.FormatInt(k.Attempt, 10)},
		{Text: cli.Coarse(k.Age)},
		{Text: expires, Style: expiryStyle(k)},
	})
	return nil
}

func (p *keyTablePrinter) end() error {
	t := cli.Table{Columns: []cli.Column{
		{Title: "OPERATION", Cut: true},
		{Title: "SCOPE", Cut: true},
		{Title: "KEY", Cut: !p.full},
		{Title: "STATE"},
		{Title: "ATTEMPT", Right: true, Extra: 1},
		{Title: "AGE", Extra: 2},
		{Title: "EXPIRES"},
	}, Rows: p.rows}
	width, _ := p.screen.Size()
	lines := t.Lines(p.screen, width)
	if p.printed {
		lines = lines[1:]
	}
	p.rows, p.printed = nil, true
	return printLines(p.screen.W, lines)
}

func stateStyle(k operator.Key) cli.Style {
	switch {
	case k.Left <= 0:
		return cli.Faint
	case k.State == operator.KeyRunning:
		return cli.Good
	case k.State == operator.KeyInDoubt:
		return cli.Bad
	case k.State == operator.KeyTombstone:
		return cli.Warn
	default:
		return cli.Plain
	}
}

func expiryStyle(k operator.Key) cli.Style {
	if k.Left <= 0 {
		return cli.Warn
	}
	return cli.Faint
}

// keyJSONPrinter prints an array, element by element.
type keyJSONPrinter struct {
	w    io.Writer
	full bool
	some bool
}

func (p *keyJSONPrinter) print(k operator.Key) error {
	text, err := json.Marshal(keyJSONOf(k, p.full))
	if err != nil {
		return err
	}
	before := "["
	if p.some {
		before = ",\n"
	}
	p.some = true
	_, err = io.WriteString(p.w, before+string(text))
	return err
}

func (p *keyJSONPrinter) end() error {
	text := "]\n"
	if !p.some {
		text = "[]\n"
	}
	_, err := io.WriteString(p.w, text)
	return err
}

// keyJSON is a key as JSON. The key in full is there only where it was asked for.
type keyJSON struct {
	Operation   string     `json:"operation"`
	Scope       string     `json:"scope"`
	Key         string     `json:"key,omitempty"`
	KeyStart    string     `json:"key_start,omitempty"`
	State       string     `json:"state"`
	Attempt     int64      `json:"attempt"`
	Status      *int       `json:"status,omitempty"`
	BodySize    int64      `json:"body_size"`
	CreatedAt   time.Time  `json:"created_at"`
	DoneAt      *time.Time `json:"done_at,omitempty"`
	ExpiresAt   time.Time  `json:"expires_at"`
	Expired     bool       `json:"expired"`
	LeftMS      int64      `json:"left_ms"`
	LeaseUntil  *time.Time `json:"lease_until,omitempty"`
	LeaseLeftMS *int64     `json:"lease_left_ms,omitempty"`
}

func keyJSONOf(k operator.Key, full bool) keyJSON {
	out := keyJSON{
		Operation: k.Operation, Scope: string(k.Scope), State: string(k.State), Attempt: k.Attempt, Status: k.Status, BodySize: k.BodySize,
		CreatedAt: k.CreatedAt.UTC(), ExpiresAt: k.ExpiresAt.UTC(), Expired: k.Left <= 0, LeftMS: k.Left.Milliseconds(),
	}
	if full {
		out.Key = k.Key.Key
	} else {
		out.KeyStart = keyStart(k.Key.Key)
	}
	if !k.DoneAt.IsZero() {
		out.DoneAt = new(k.DoneAt.UTC())
	}
	if !k.LeaseTo.IsZero() {
		out.LeaseUntil, out.LeaseLeftMS = new(k.LeaseTo.UTC()), new(k.LeaseLeft.Milliseconds())
	}
	return out
}
