package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// call is one call of Do, DoTx or Begin.
type call struct {
	*Store
	key   Key
	fp    Fingerprint
	codec string    // of the body; empty: bytes
	until time.Time // when waiting ends; zero: FailFast
	fn    func(context.Context, pgx.Tx) (Reply, error)
}

func (s *Store) newCall(key Key, fp Fingerprint, opts *Options, fn func(context.Context, pgx.Tx) (Reply, error)) (*call, error) {
	if err := key.validate(); err != nil {
		return nil, err
	}
	c := &call{Store: s, key: key, fp: fp, fn: fn}
	if opts != nil && opts.Wait > 0 {
		c.until = time.Now().Add(opts.Wait)
	}
	return c, nil
}

// claimWait is how long a FailFast claim waits for somebody who writes to the row
// without the key's lock: a lease-mode claim, the GC, a person.
const claimWait = 100 * time.Millisecond

// patience is the longest that the next statement may wait for a lock.
func (c *call) patience() time.Duration {
	if c.until.IsZero() {
		return claimWait
	}
	return time.Until(c.until)
}

func (c *call) waits() bool { return !c.until.IsZero() && time.Now().Before(c.until) }

// asLockTimeout is d in the unit of lock_timeout, not less, in its bounds: 0 is no limit.
func asLockTimeout(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > 0 && d%time.Millisecond != 0 {
		ms++
	}
	return min(max(ms, 1), math.MaxInt32)
}

// probe reads what stands in the way: a Result to replay, an error, or nil and nil
// when nothing does. A second statement where neither a reply nor a mismatch does.
func (c *call) probe(ctx context.Context, db idemdb.DBTX) (*Result, error) {
	row, err := idemdb.New(db).KeyProbe(ctx, idemdb.KeyProbeParams{
		Operation: c.key.Operation, Scope: string(c.key.Scope), Key: c.key.Key,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, c.failure(ctx, "look up", err)
	}
	f := finding{
		State: row.State, Same: row.FingerprintVersion == fingerprintVersion && bytes.Equal(row.Fingerprint, c.fp[:]),
		Headers: string(row.Headers), Body: row.Body,
	}
	if row.Status != nil {
		f.Status = *row.Status
	}
	if row.Codec != nil {
		f.Codec = *row.Codec
	}
	if f.State == stateRunning || f.State == stateTombstone && f.Same {
		if absent, err := c.detail(ctx, db, &f); absent || err != nil {
			return nil, err
		}
	}
	return c.decide(f)
}

// detail completes a finding. absent says that the row is as none.
func (c *call) detail(ctx context.Context, db idemdb.DBTX, f *finding) (absent bool, err error) {
	row, err := idemdb.New(db).KeyDetail(ctx, idemdb.KeyDetailParams{
		Operation: c.key.Operation, Scope: string(c.key.Scope), Key: c.key.Key,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return true, nil
	case err != nil:
		return false, c.failure(ctx, "look up", err)
	}
	f.BodyLen, f.DoneUs, f.LeaseUs = row.BodyLen, row.DoneUs, row.LeaseUs
	return row.Absent, nil
}

// finding is the row of a key that isn't as absent.
type finding struct {
	State   int16
	Same    bool // fingerprint
	Status  int32
	Headers string
	Body    []byte
	Codec   string
	BodyLen int64
	DoneUs  int64
	LeaseUs int64
}

// decide is the table of states, for the same and for another fingerprint.
func (c *call) decide(f finding) (*Result, error) {
	if !f.Same {
		return nil, fmt.Errorf("%s: %w", c.key, ErrMismatch)
	}
	switch f.State {
	case stateRunning:
		return nil, fmt.Errorf("%s: %w", c.key, &InProgressError{RetryAfter: max(0, time.Duration(f.LeaseUs)*time.Microsecond)})
	case stateTombstone:
		return nil, fmt.Errorf("%s: %w", c.key, &ReplayUnavailableError{Status: int(f.Status), Size: f.BodyLen, DoneAt: time.UnixMicro(f.DoneUs)})
	case stateDone:
		if f.Codec != c.codec {
			return nil, fmt.Errorf("%s: %w: it was stored as %s, not as %s", c.key, ErrInvalidReply, codecName(f.Codec), codecName(c.codec))
		}
		header, err := decodeHeader(f.Headers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.key, err)
		}
		return &Result{Reply: Reply{Status: int(f.Status), Header: header, Body: f.Body}, Replayed: true}, nil
	default: // released: to be claimed
		return nil, nil
	}
}

// States of a row.
const (
	stateRunning   = 1
	stateDone      = 2
	stateTombstone = 3
)

// codecJSON is the codec of DoValue.
const codecJSON = "json"

func codecName(codec string) string {
	if codec == "" {
		return "bytes"
	}
	return codec
}

// record is what is stored of a reply.
func (c *call) record(r Reply, attempt string) (idemdb.KeyFinishParams, error) {
	p := idemdb.KeyFinishParams{
		Operation: c.key.Operation, Scope: string(c.key.Scope), Key: c.key.Key, Attempt: attempt,
		State: stateDone, Status: int32(r.Status), BodyLen: int64(len(r.Body)), RetentionUs: c.cfg.Retention.Microseconds(),
	}
	if int(p.Status) != r.Status {
		return p, fmt.Errorf("%s: %w: Status %d is beyond 32 bits", c.key, ErrInvalidReply, r.Status)
	}
	if c.codec != "" {
		p.Codec = &c.codec
	}
	if len(r.Body) > c.cfg.MaxBody {
		p.State = stateTombstone
		return p, nil
	}
	header, err := encodeHeader(r.Header)
	if err != nil {
		return p, fmt.Errorf("%s: %w: %w", c.key, ErrInvalidReply, err)
	}
	if r.Header != nil {
		p.Headers = &header
	}
	p.Body = r.Body
	return p, nil
}
