package idem_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// batchOf makes messages whose bodies are their IDs.
func batchOf(ids ...string) []idem.Message {
	var messages []idem.Message
	for _, id := range ids {
		messages = append(messages, idem.Message{ID: id, Body: []byte(id)})
	}
	return messages
}

// consumeBatch commits a batch whose messages each leave an effect.
func consumeBatch(t *testing.T, pool *pgxpool.Pool, consumer string, messages []idem.Message, run func(string) func(pgx.Tx) error) (refused []idem.Refused, err error) {
	t.Helper()
	err = pgx.BeginTxFunc(t.Context(), pool, orReadCommitted(pgx.TxOptions{}), func(tx pgx.Tx) (err error) {
		refused, err = idem.InboxBatch(t.Context(), tx, consumer, messages, func(tx pgx.Tx, fresh []idem.Message) error {
			for _, m := range fresh {
				if err := run(string(m.Body))(tx); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	})
	return refused, err
}

func TestInboxBatch_RunsWhatIsNewInItsOrder(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		if !works(mode) {
			continue
		}
		pool := modePool(t, mode)
		name, run := effects(t, pool)
		consumer := pgtest.Name(t)
		for _, ids := range [][]string{{"c", "a"}, {"d", "a", "b", "d", "c", "b"}, {"a", "b"}, nil} {
			refused, err := consumeBatch(t, pool, consumer, batchOf(ids...), run)
			if err != nil || len(refused) != 0 {
				t.Fatalf("%s: refused %v, %v", mode, refused, err)
			}
		}
		wantEffects(t, pool, name, "c a d b")
	}
}

func TestInboxBatch_TheRefusedStopNoOther(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	if _, err := consumeBatch(t, pool, consumer, batchOf("a", "b"), run); err != nil {
		t.Fatal(err)
	}
	messages := batchOf("c", "a", "b", "", "c", "d")
	messages[1].Body = []byte("changed")                               // against the first batch
	messages = append(messages, batchOf("a")...)                       // as in the first batch
	messages = append(messages, idem.Message{ID: "d", Payload: hello}) // against this batch
	refused, err := consumeBatch(t, pool, consumer, messages, run)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		id  string
		err error
	}{{"a", idem.ErrMismatch}, {"", idem.ErrInvalidKey}, {"d", idem.ErrMismatch}}
	if len(refused) != len(want) {
		t.Fatalf("refused %+v, want %d", refused, len(want))
	}
	for i, w := range want {
		if refused[i].ID != w.id || !errors.Is(refused[i].Err, w.err) {
			t.Errorf("refused %q with %v, want %q with %v", refused[i].ID, refused[i].Err, w.id, w.err)
		}
	}
	wantEffects(t, pool, name, "a b c d")
}

func TestInboxBatch_AFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	boom := errors.New("boom")
	tx := begin(t, pool, pgx.TxOptions{})
	refused, err := idem.InboxBatch(t.Context(), tx, consumer, batchOf("a", "", "b"), func(tx pgx.Tx, fresh []idem.Message) error {
		return errors.Join(run(string(fresh[0].Body))(tx), boom)
	})
	wantErr(t, err, boom)
	if refused != nil {
		t.Errorf("refused %v beside an error", refused)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, pool, name, "")
	if _, err := consumeBatch(t, pool, consumer, batchOf("b", "a"), run); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, pool, name, "b a")
}

func TestInboxBatch_DoesNotDeadlockWhateverTheOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	const rounds, size = 5, 200
	for round := range rounds {
		var ids []string
		for i := range size {
			ids = append(ids, fmt.Sprintf("%d-%d", round, i))
		}
		var wg sync.WaitGroup
		for range 8 {
			mine := batchOf(ids...)
			rand.Shuffle(size, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			wg.Go(func() {
				refused, err := consumeBatch(t, pool, consumer, mine, run)
				for errors.Is(err, idem.ErrInProgress) { // a queue that is too long for a busy machine: delivered again
					refused, err = consumeBatch(t, pool, consumer, mine, run)
				}
				if err != nil || len(refused) > 0 {
					t.Errorf("refused %v, %v", refused, err)
				}
			})
		}
		wg.Wait()
	}
	if n := count(t, pool, name); n != rounds*size {
		t.Errorf("%d effects, want %d", n, rounds*size)
	}
}

// A key of the inbox's that somebody claimed by another way is nobody's message.
func TestInboxBatch_LeavesAloneWhatIsNotAMark(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	name, run := effects(t, pool)
	consumer := pgtest.Name(t)
	for _, state := range []int{1, 3, 4} {
		exec(t, pool, `INSERT INTO gatepost.idempotency_keys (operation, scope, key, state, fingerprint, fingerprint_version, attempt,
				attempt_no, lease_until, created_at, expires_at)
			VALUES ('inbox', $1, 's' || $2::int, $2::int, $3, 1, gen_random_uuid(), 1,
				CASE WHEN $2::int = 1 THEN clock_timestamp() END, clock_timestamp(), clock_timestamp() - interval '1 day')`,
			consumer, state, hello[:])
		err := consume(t.Context(), pool, consumer, fmt.Sprintf("s%d", state), hello, run("x"))
		wantErr(t, err, idem.ErrInProgress)
	}
	wantEffects(t, pool, name, "")
}
