package idem

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// inboxBatch is one call of Inbox or InboxBatch.
type inboxBatch struct {
	*call
	tx       pgx.Tx
	attempt  string
	opened   bool // the savepoint is there
	messages []inboxMessage
	keys     []string // without duplicates
	prints   []string // of keys, in hex
	known    map[string]bool
}

// inboxMessage is a message, its key, and what became of it: neither fresh nor an
// error, it was seen before.
type inboxMessage struct {
	Message
	key   string
	first bool // of its key in the batch
	fresh bool
	err   error
}

func (s *Store) newInboxBatch(tx pgx.Tx, consumer string) (*inboxBatch, error) {
	if !storable(consumer, maxScopeBytes) {
		return nil, fmt.Errorf("%w: the consumer must be 1 to %d bytes of UTF-8 without NUL", ErrInvalidKey, maxScopeBytes)
	}
	return &inboxBatch{call: &call{Store: s, key: InboxKey(consumer, "-")}, tx: tx, attempt: newAttempt(), known: map[string]bool{}}, nil
}

// add takes a message. Only the first one of a key can be run.
func (b *inboxBatch) add(m Message) {
	in := inboxMessage{Message: m, key: InboxKey(string(b.key.Scope), m.ID).Key}
	if in.key == "" {
		in.err = fmt.Errorf("%w: the message has no ID", ErrInvalidKey)
	} else if in.first = !b.known[in.key]; in.first {
		b.known[in.key] = true
		b.keys = append(b.keys, in.key)
		b.prints = append(b.prints, hex.EncodeToString(m.Payload[:]))
	}
	b.messages = append(b.messages, in)
}

// mark marks what is new, and looks again where a row was gone between the mark, which
// it stopped, and the look at it.
func (b *inboxBatch) mark(ctx context.Context) error {
	for range maxRounds {
		rows, err := b.markOnce(ctx)
		if err != nil {
			return b.failure(ctx, "mark", err)
		}
		if len(rows) == len(b.keys) {
			return b.judge(rows)
		}
	}
	return fmt.Errorf("%s: %w", b.key, &InProgressError{})
}

// judge tells what each message is from the row of its key.
func (b *inboxBatch) judge(rows []idemdb.InboxSeenRow) error {
	seen := map[string]idemdb.InboxSeenRow{}
	for _, row := range rows {
		if row.State != stateDone {
			return fmt.Errorf("%s: %w: the key is not a message's", b.key, &InProgressError{})
		}
		seen[row.Key] = row
	}
	for i := range b.messages {
		m := &b.messages[i]
		row := seen[m.key]
		switch {
		case m.err != nil:
		case row.FingerprintVersion != fingerprintVersion || !bytes.Equal(row.Fingerprint, m.Payload[:]):
			m.err = fmt.Errorf("%w: the message's ID came before with another payload", ErrMismatch)
		default:
			m.fresh = row.Mine && m.first
		}
	}
	return nil
}

// markOnce is one round trip. What it reads, it reads in a statement of its own, after
// the one that may have waited.
func (b *inboxBatch) markOnce(ctx context.Context) (seen []idemdb.InboxSeenRow, err error) {
	batch := &pgx.Batch{}
	if !b.opened {
		batch.Queue(savepointKey)
	}
	operation, scope := b.key.Operation, string(b.key.Scope)
	batch.Queue(idemdb.InboxMark, b.keys, b.prints, operation, scope, asLockTimeout(inboxWait),
		int16(fingerprintVersion), b.attempt, b.cfg.Retention.Microseconds())
	batch.Queue(idemdb.InboxSeen, b.keys, b.attempt, operation, scope)
	results := b.tx.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if !b.opened {
		if _, err := results.Exec(); err != nil {
			return nil, err
		}
		b.opened = true
	}
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[idemdb.InboxSeenRow])
}

// run calls fn with what is new.
func (b *inboxBatch) run(ctx context.Context, fn func(pgx.Tx, []Message) error) error {
	var fresh []Message
	for _, m := range b.messages {
		if m.fresh {
			fresh = append(fresh, m.Message)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	tx := newGuardedTx(b.tx)
	defer tx.close()
	err := fn(tx, fresh)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", b.key, interrupted(ctx, err))
	}
	if _, final := errors.AsType[*finalError](err); final {
		return fmt.Errorf("%s: Final is for Do and DoTx: %w", b.key, err)
	}
	_, err = tx.judge(Reply{}, err)
	return err
}

func (b *inboxBatch) refused() (refused []Refused) {
	for _, m := range b.messages {
		if m.err != nil {
			refused = append(refused, Refused{Message: m.Message, Err: m.err})
		}
	}
	return refused
}
