package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	rnd "math/rand/v2"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// fillNames makes names that were released, and among them heldNames that somebody
// holds.
const fillNames = `INSERT INTO gatepost.leases (name, slot, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions)
SELECT
    'scale/' || lpad(i::text, 8, '0'), 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    CASE WHEN i <= 100 THEN gen_random_uuid() END, CASE WHEN i <= 100 THEN 'elsewhere/1' END,
    now(), now(), now() + CASE WHEN i <= 100 THEN interval '7 days' ELSE interval '0' END, 1
FROM generate_series($1::int, $2::int) AS i`

const heldNames = 100

// ofNames measures what grows with the rows of gatepost.leases.
func (s *scale) ofNames(ctx context.Context) error {
	s.small.names, s.large.names = smallSize, s.Sizes.Names
	for _, h := range []*house{s.small, s.large} {
		if err := s.fill(ctx, h, "gatepost.leases", fillNames, h.names); err != nil {
			return err
		}
	}
	for _, o := range []struct {
		what string
		n    int
		on   func(context.Context, *house) (op, error)
	}{
		{"acquire + release", 400, known},
		{"acquire + release, a new name", 400, unknown},
		{"a try that finds it held", 400, busy},
		{"a renewal", 400, kept},
		{"a fenced transaction", 400, fencedNote},
		{"show", 400, shown},
		{"ls, a look of watch (100 held)", 40, listed("")},
		{"ls --prefix (10 held)", 40, listed("scale/0000001")},
		{"gc", 8, collected("leases")},
		{"gc --dry-run", 8, counted("leases")},
		{"doctor", 8, examined},
	} {
		small, err := o.on(ctx, s.small)
		if err != nil {
			return err
		}
		large, err := o.on(ctx, s.large)
		if err != nil {
			return err
		}
		if err := s.grow(ctx, "names", o.what, s.small.names, s.large.names, o.n, whole(small), whole(large)); err != nil {
			return fmt.Errorf("%s: %w", o.what, err)
		}
	}
	return nil
}

// name is one that is there and free.
func (h *house) name() string {
	return fmt.Sprintf("scale/%08d", heldNames+1+rnd.IntN(h.names-heldNames))
}

func known(_ context.Context, h *house) (op, error) {
	return func(ctx context.Context) error { return cycle(h.client, h.name())(ctx) }, nil
}

func unknown(_ context.Context, h *house) (op, error) {
	return func(ctx context.Context) error { return cycle(h.client, "scale/"+rand.Text())(ctx) }, nil
}

func busy(_ context.Context, h *house) (op, error) {
	return func(ctx context.Context) error {
		_, err := h.client.TryAcquire(ctx, fmt.Sprintf("scale/%08d", 1+rnd.IntN(heldNames)), nil)
		if err == nil {
			return errors.New("a name was to be held, but could be had")
		}
		return ignore(err, pglock.ErrHeld)
	}, nil
}

func kept(ctx context.Context, h *house) (op, error) {
	lease, err := h.client.Acquire(ctx, h.name(), nil)
	if err != nil {
		return nil, err
	}
	return lease.Renew, nil
}

func fencedNote(ctx context.Context, h *house) (op, error) {
	lease, err := h.client.Acquire(ctx, h.name(), nil)
	if err != nil {
		return nil, err
	}
	return fenceBy(lease), nil
}

func fenceBy(lease *pglock.Lease) op {
	return inTx("INSERT INTO public.notes VALUES ($1)", func(ctx context.Context) (pgx.Tx, error) {
		return lease.BeginTx(ctx, pgx.TxOptions{})
	})
}

func shown(_ context.Context, h *house) (op, error) {
	return func(ctx context.Context) error {
		_, err := h.client.Get(ctx, h.name())
		return err
	}, nil
}

// listed reads who holds what, and who waits, as ls does.
func listed(prefix string) func(context.Context, *house) (op, error) {
	return func(_ context.Context, h *house) (op, error) {
		return func(ctx context.Context) error {
			found, err := h.client.List(ctx, &pglock.ListOptions{Prefix: prefix})
			if err != nil || len(found) == 0 {
				return errors.Join(err, fmt.Errorf("%d names are held", len(found)))
			}
			names := make([]string, len(found))
			for i, f := range found {
				names[i] = f.Name
			}
			_, err = operator.WaiterCounts(ctx, h.pool, names)
			return err
		}, nil
	}
}

// collected collects, where little or nothing is due.
func collected(kind string) func(context.Context, *house) (op, error) {
	return func(_ context.Context, h *house) (op, error) {
		return func(ctx context.Context) error {
			_, err := garbage(kind).Collect(ctx, h.pool, 0)
			return err
		}, nil
	}
}

func counted(kind string) func(context.Context, *house) (op, error) {
	return func(_ context.Context, h *house) (op, error) {
		return func(ctx context.Context) error {
			_, err := garbage(kind).Backlog(ctx, h.pool)
			return err
		}, nil
	}
}

func garbage(kind string) operator.Garbage {
	for _, g := range operator.AllGarbage {
		if g.JSON == kind {
			return g
		}
	}
	panic("there is no garbage of that kind")
}

// examined is what doctor does, in which no check may take too long.
func examined(_ context.Context, h *house) (op, error) {
	return func(ctx context.Context) error {
		report, err := doctor.Examine(ctx, h.config.ConnConfig, doctor.Options{})
		if err != nil {
			return err
		}
		for _, r := range report.Results {
			if r.Failed != "" {
				return fmt.Errorf("doctor's %s: %s", r.Check, r.Failed)
			}
		}
		return nil
	}, nil
}
