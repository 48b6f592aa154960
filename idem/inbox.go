package idem

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// InboxRetention is how long Inbox and InboxBatch remember a message: as long as the
// most patient of the common brokers may still deliver it. The methods of a Store
// remember it as long as its Config says.
const InboxRetention = 14 * 24 * time.Hour

const (
	// inboxOperation is the operation of the keys of messages.
	inboxOperation = "inbox"
	// inboxWait is the longest to wait for another consumer that has the message.
	inboxWait = 5 * time.Second
	// hashedPrefix begins the key of an ID that can't be one itself.
	hashedPrefix = "sha256:"
)

// inboxStore is what the functions without a Store use. It has no pool.
var inboxStore = &Store{cfg: Config{Retention: InboxRetention}}

// Message is one message of a batch.
type Message struct {
	// ID is what stays the same when the broker delivers the message again: any text
	// but an empty one.
	ID string
	// Payload tells this message from another one under the same ID. Zero stands for
	// FingerprintOf(Body).
	Payload Fingerprint
	// Body is for fn. It is not stored.
	Body []byte
}

// Refused is a message that was neither run nor had been.
type Refused struct {
	Message
	// Err is ErrMismatch, of an ID that came before with another payload, or
	// ErrInvalidKey, of an empty ID. It will not change: the message is one for the
	// dead letters.
	Err error
}

// Inbox runs fn once for a message of a consumer, however often the broker delivers
// it: the mark that the message was seen and what fn writes are both in tx, the
// caller's transaction. Acknowledge the message after tx is committed, and on no
// error here before that.
//
// A message that was seen is no error, and fn is not run. One that another
// transaction is working on is waited for, 5 s at most. Where fn fails or panics, it
// is undone together with the mark, tx is usable, and the message will run when it
// is delivered again. So it is after each error of Inbox's own, but for a lost
// connection, ErrNotMigrated, and a ctx that has ended. fn must not end the
// transaction that it gets.
//
// The mark is a row of gatepost.idempotency_keys under InboxKey, kept for
// InboxRetention.
//
// Errors: fn's own; ErrMismatch when the ID came before with another payload (a
// message for the dead letters); ErrInProgress (not acknowledged, it comes again);
// ErrRetryTx (repeat the transaction; at REPEATABLE READ and SERIALIZABLE also when
// the message was seen after the snapshot); ErrInvalidKey of an empty ID, or a
// consumer that is not 1 to 200 bytes of UTF-8; ErrNotMigrated; ErrUnavailable.
//
// Two round trips and what fn does. A message that was seen costs them too, takes no
// lock and writes nothing.
func Inbox(ctx context.Context, tx pgx.Tx, consumer, messageID string, payload Fingerprint, fn func(pgx.Tx) error) error {
	return inboxStore.Inbox(ctx, tx, consumer, messageID, payload, fn)
}

// Inbox is the function Inbox with the Store's Config.Retention. It uses no
// connection but tx.
func (s *Store) Inbox(ctx context.Context, tx pgx.Tx, consumer, messageID string, payload Fingerprint, fn func(pgx.Tx) error) error {
	b, err := s.newInboxBatch(tx, consumer)
	if err != nil {
		return err
	}
	b.add(Message{ID: messageID, Payload: payload})
	refused, err := b.do(ctx, func(tx pgx.Tx, _ []Message) error { return fn(tx) })
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("inbox of %q: %w", consumer, refused[0].Err)
	}
	return err
}

// InboxBatch is Inbox for many messages at once: it marks those that are new in one
// round trip, and fn gets them, in their order; it is not called where none is. Of
// one message that is there twice, the first counts. Batches that have messages in
// common don't deadlock, whatever their order.
//
// A message that can't be one of the consumer's stops no other: it comes back as
// Refused. Without an error, commit, send the refused ones to the dead letters, and
// acknowledge all. With one, nothing of the batch is done or marked.
func InboxBatch(ctx context.Context, tx pgx.Tx, consumer string, messages []Message, fn func(pgx.Tx, []Message) error) ([]Refused, error) {
	return inboxStore.InboxBatch(ctx, tx, consumer, messages, fn)
}

// InboxBatch is the function InboxBatch with the Store's Config.Retention.
func (s *Store) InboxBatch(ctx context.Context, tx pgx.Tx, consumer string, messages []Message, fn func(pgx.Tx, []Message) error) ([]Refused, error) {
	b, err := s.newInboxBatch(tx, consumer)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if m.Payload == (Fingerprint{}) {
			m.Payload = FingerprintOf(m.Body)
		}
		b.add(m)
	}
	return b.do(ctx, fn)
}

// InboxKey is the key under which a consumer's message is marked, such as for
// Store.Forget. The ID is the key where it can be one; any other, or one that begins
// with "sha256:", is there as "sha256:" and its SHA-256 in hex.
func InboxKey(consumer, messageID string) Key {
	key := Key{Operation: inboxOperation, Scope: Scope(consumer), Key: messageID}
	if messageID != "" && (strings.HasPrefix(messageID, hashedPrefix) || key.validate() != nil) {
		sum := sha256.Sum256([]byte(messageID))
		key.Key = hashedPrefix + hex.EncodeToString(sum[:])
	}
	return key
}

// do undoes all that was done since the savepoint, unless it went well.
func (b *inboxBatch) do(ctx context.Context, fn func(pgx.Tx, []Message) error) (refused []Refused, err error) {
	if len(b.keys) == 0 {
		return b.refused(), nil
	}
	done := false
	defer func() { // also when fn panics
		if !done && b.opened {
			giveBack(ctx, b.tx)
		}
	}()
	if err = b.mark(ctx); err == nil {
		err = b.run(ctx, fn)
	}
	if err == nil {
		if _, err = b.tx.Exec(ctx, releaseKey); err != nil {
			err = b.failure(ctx, "mark", err)
		}
	}
	if done = err == nil; done {
		return b.refused(), nil
	}
	if !errors.Is(err, ErrRetryTx) && retryable(err) {
		err = fmt.Errorf("%w: %w", ErrRetryTx, err)
	}
	return nil, err
}
