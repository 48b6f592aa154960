package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	rnd "math/rand/v2"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/jackc/pgx/v5"
)

const keyOperation = "scale"

// fillKeys makes keys that are done, spread over the range of random ones, and one in
// doubt. They are made in their order, which random ones would take hours for.
const fillKeys = `INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version,
    attempt, attempt_no, lease_until, status, body, body_len, created_at, done_at, expires_at)
SELECT
    'scale', 'global', lpad(to_hex(i::bigint * (4294967295 / %d)), 8, '0') || substr(md5(i::text), 1, 24),
    CASE WHEN i = 700 THEN 1 ELSE 2 END, '\x0000000000000000000000000000000000000000000000000000000000000000', 1,
    gen_random_uuid(), 1, CASE WHEN i = 700 THEN now() END, 201, '\x%x', 200, now(), now(), now() + interval '1 day' + i * interval '1 ms'
FROM generate_series($1::int, $2::int) AS i`

// expireKeys makes keys that have expired.
const expireKeys = `INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version,
    attempt, attempt_no, status, body, body_len, created_at, done_at, expires_at)
SELECT 'scale', 'global', md5(random()::text), 2, '\x0000000000000000000000000000000000000000000000000000000000000000', 1,
    gen_random_uuid(), 1, 201, '\x00', 1, now(), now(), now() - interval '1 minute'
FROM generate_series(1, $1::int)`

// ofKeys measures what grows with the rows of gatepost.idempotency_keys.
func (s *scale) ofKeys(ctx context.Context) error {
	s.small.keys, s.large.keys = smallSize, s.Sizes.Keys
	for _, h := range []*house{s.small, s.large} {
		if err := s.fill(ctx, h, "gatepost.idempotency_keys", fmt.Sprintf(fillKeys, h.keys, reply.Body), h.keys); err != nil {
			return err
		}
	}
	all := func(do func(*house) op) func(*house) timed {
		return func(h *house) timed { return whole(do(h)) }
	}
	for _, o := range []struct {
		what string
		n    int
		on   func(*house) timed
	}{
		{"idempotent transaction", 400, all(onceMore)},
		{"replay", 400, all(replayed)},
		{"GC of 1,000 that expired", 16, collectThousand},
		{"GC with nothing to do", 80, all(func(h *house) op {
			return func(ctx context.Context) error { _, err := h.store.GC(ctx); return err }
		})},
		{"keys show", 400, all(record)},
		{"keys ls (100)", 40, all(keysIn(operator.KeyFilter{}, 100))},
		{"keys ls --state done (100)", 40, all(keysIn(operator.KeyFilter{State: operator.KeyDone}, 100))},
		{"keys ls --state in-doubt (1)", 8, all(keysIn(operator.KeyFilter{State: operator.KeyInDoubt}, 1))},
		{"gc --dry-run", 8, all(func(h *house) op { do, _ := counted("keys")(ctx, h); return do })},
		{"doctor", 8, all(func(h *house) op { do, _ := examined(ctx, h); return do })},
	} {
		if err := s.grow(ctx, "keys", o.what, s.small.keys, s.large.keys, o.n, o.on(s.small), o.on(s.large)); err != nil {
			return fmt.Errorf("%s: %w", o.what, err)
		}
	}
	return s.whileCollecting(ctx)
}

// whileCollecting measures calls while a collection goes on in both.
func (s *scale) whileCollecting(ctx context.Context) error {
	collecting, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	for _, h := range []*house{s.small, s.large} {
		go func() {
			collect := collectThousand(h)
			var err error
			for err == nil {
				_, err = collect(collecting)
			}
			ended <- err
		}()
	}
	err := s.grow(ctx, "keys", "idempotent transaction, GC at work", s.small.keys, s.large.keys, 400, whole(onceMore(s.small)), whole(onceMore(s.large)))
	cancel()
	for range 2 {
		if gone := <-ended; !errors.Is(gone, context.Canceled) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

func (h *house) do(ctx context.Context, key string) error {
	_, err := h.store.Do(ctx, idem.Key{Operation: keyOperation, Scope: idem.Global, Key: key}, idem.FingerprintOf([]byte(note)), nil,
		func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			_, err := tx.Exec(ctx, "INSERT INTO public.notes VALUES ($1)", note)
			return reply, err
		})
	return err
}

func onceMore(h *house) op {
	return func(ctx context.Context) error { return h.do(ctx, randomKey()) }
}

// randomKey lies anywhere among those that are there.
func randomKey() string { return fmt.Sprintf("%08x-%s", rnd.Uint32(), rand.Text()) }

func replayed(h *house) op {
	var keys []string
	return func(ctx context.Context) error {
		if len(keys) < 20 {
			keys = append(keys, randomKey())
			return h.do(ctx, keys[len(keys)-1])
		}
		return h.do(ctx, keys[rnd.IntN(len(keys))])
	}
}

// collectThousand makes 1,000 expired keys, and times their collection.
func collectThousand(h *house) timed {
	return func(ctx context.Context) (time.Duration, error) {
		if _, err := h.pool.Exec(ctx, expireKeys, 1000); err != nil {
			return 0, err
		}
		start := time.Now()
		removed, err := h.store.GC(ctx)
		took := time.Since(start)
		if err == nil && removed != 1000 {
			err = fmt.Errorf("GC removed %d keys, not 1,000", removed)
		}
		return took, err
	}
}

func record(h *house) op {
	key := ""
	return func(ctx context.Context) error {
		if key == "" {
			key = randomKey()
			return h.do(ctx, key)
		}
		_, err := operator.RecordOf(ctx, h.pool, idem.Key{Operation: keyOperation, Scope: idem.Global, Key: key})
		return err
	}
}

// keysIn lists so many keys, as keys ls does.
func keysIn(f operator.KeyFilter, most int) func(*house) op {
	return func(h *house) op {
		return func(ctx context.Context) error {
			n := 0
			for _, err := range operator.Keys(ctx, h.pool, f) {
				if err != nil {
					return err
				}
				if n++; n == most && most > 1 {
					break
				}
			}
			if n != most {
				return fmt.Errorf("%d keys are in the list, not %d", n, most)
			}
			return nil
		}
	}
}
