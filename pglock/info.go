package pglock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/internal/planned"
	"github.com/jackc/pgx/v5"
)

// LeaseInfo is what the database says of a name. All times are the database's.
// It is history when it arrives: to act on it, acquire or fence.
type LeaseInfo struct {
	Name        string
	Held        bool   // by somebody whose lease is not over
	Holder      string // who it is, for people; of the last one when it lapsed
	Token       int64  // of the last acquisition; 0 when there was none
	Transitions int64  // how often it was acquired
	AcquiredAt  time.Time
	RenewedAt   time.Time
	ExpiresAt   time.Time
	Left        time.Duration   // until it lapses; negative since it did
	Data        json.RawMessage // nil when there is none
}

// ListOptions chooses what List returns. Nil means all that is held.
type ListOptions struct {
	Prefix string // of the name
	After  string // names behind this one: to page on
	Limit  int    // defaults to 1,000
	Free   bool   // also names that nobody holds
}

// Get reads one name. A name that nobody holds, or ever held, is no error: Held is
// false. One statement on a pooled connection, no lock.
func (c *Client) Get(ctx context.Context, name string) (*LeaseInfo, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	row, err := lockdb.New(c.pool).LeaseGet(ctx, lockdb.LeaseGetParams{Name: name})
	if errors.Is(err, pgx.ErrNoRows) {
		return &LeaseInfo{Name: name}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %q: %w", name, translate(err))
	}
	info := infoOf(row)
	return &info, nil
}

// List reads names in their order. One statement on a pooled connection, no lock. It
// reads the names from After on until it has enough, also those that nobody holds: of a
// million that are free that is most of a second. With a Prefix it reads no others.
func (c *Client) List(ctx context.Context, opts *ListOptions) ([]LeaseInfo, error) {
	if opts == nil {
		opts = &ListOptions{}
	}
	if opts.Limit < 0 || !validText(opts.Prefix) || !validText(opts.After) {
		return nil, fmt.Errorf("%w: ListOptions has a negative Limit, or text that isn't UTF-8", ErrInvalidConfig)
	}
	limit := opts.Limit
	if limit == 0 {
		limit = 1000
	}
	rows, err := lockdb.New(planned.Pool{Pool: c.pool}).LeaseList(ctx, lockdb.LeaseListParams{
		Prefix: opts.Prefix, BeforeName: behind(opts.Prefix), After: opts.After, Free: opts.Free, Most: int32(min(limit, 1<<30)),
	})
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", translate(err))
	}
	list := make([]LeaseInfo, len(rows))
	for i, row := range rows {
		list[i] = infoOf(lockdb.LeaseGetRow(row))
	}
	return list, nil
}

// behind is the first text behind all that begin with a prefix, by their bytes. It is
// empty where there may be none that each database's encoding has.
func behind(prefix string) string {
	if n := len(prefix) - 1; n >= 0 && prefix[n] >= ' ' && prefix[n] < '~' {
		return prefix[:n] + string(prefix[n]+1)
	}
	return ""
}

func infoOf(row lockdb.LeaseGetRow) LeaseInfo {
	info := LeaseInfo{
		Name: row.Name, Held: row.Held, Holder: row.Holder, Token: row.Token, Transitions: row.Transitions,
		AcquiredAt: row.AcquiredAt.Time, RenewedAt: row.RenewedAt.Time, ExpiresAt: row.ExpiresAt.Time,
		Left: time.Duration(row.LeftUs) * time.Microsecond,
	}
	if row.Data != "null" {
		info.Data = json.RawMessage(row.Data)
	}
	return info
}
