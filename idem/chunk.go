package idem

import (
	"slices"
	"sync/atomic"
	"time"
)

// pace is how large chunks are.
type pace struct {
	least, most int           // bytes of a chunk: the first one, and any
	chunks      int           // that go straight, at most
	patience    time.Duration // for a source to fill one
}

// usualPace has chunks grow with what went, so that a million rows of 60 bytes are some
// thirty. Each is a subtransaction, and with more than 64 of them in a transaction
// PostgreSQL looks up on disk, for each reader of the database, what belongs to which.
// Two chunks are in memory. A source that is slow gives smaller ones, lest the connection
// is idle in its transaction for as long as a whole one takes.
var usualPace = pace{least: 256 << 10, most: 8 << 20, chunks: 48, patience: 2 * time.Second}

// span is the keys of a chunk that went straight, or was left out.
type span struct {
	first, last []int64
	there       bool // all of them, before this call
}

// chunk is a part of the input.
type chunk struct {
	span
	lines []byte
	rows  int64
}

// args are the first key and the last one.
func (k span) args() []any {
	args := make([]any, 0, 2*len(k.first)+1)
	for _, n := range slices.Concat(k.first, k.last) {
		args = append(args, n)
	}
	return args
}

// fill reads a chunk, until it is large, or has enough, or its keys no longer rise.
func (s *straight) fill(c *chunk, enough *atomic.Bool) {
	impatient := time.AfterFunc(s.patience, func() { enough.Store(true) })
	defer impatient.Stop()
	t, limit := s.text, min(max(s.least, s.bytes/6), s.most)
	t.buf = c.lines[:0]
	for len(t.buf) < limit && !t.keys.broken && (c.rows == 0 || !enough.Load()) && t.add() {
		if c.rows++; c.rows == 1 {
			c.first = slices.Clone(t.keys.last)
		}
	}
	c.last = slices.Clone(t.keys.last)
	c.lines, t.buf = t.buf, nil
}
