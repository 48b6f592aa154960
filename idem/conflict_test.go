package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func raise(state string) string {
	return fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = 'as ordered'; END $$`, state)
}

// conflicts are ways of meeting one, and of keeping silent about it.
var conflicts = map[string]func(context.Context, pgx.Tx) error{
	"serialization failure": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, raise("40001")); return err },
	"deadlock":              func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, raise("40P01")); return err },
	"wrapped in Final": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, raise("40001"))
		return fmt.Errorf("%w, because of %w", idem.Final(created), err)
	},
	"swallowed": func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, raise("40001")); return nil },
	"swallowed, Final": func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, raise("40001"))
		return idem.Final(created)
	},
	"swallowed, and a later error": func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, raise("40P01"))
		_, err := tx.Exec(ctx, `SELECT 1`)
		return err
	},
	"swallowed, Query, Final": func(ctx context.Context, tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, raise("40001"))
		rows.Close()
		return idem.Final(created)
	},
	"swallowed, nested, Final": func(ctx context.Context, tx pgx.Tx) error {
		_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, raise("40001")); return err })
		return idem.Final(created)
	},
	"swallowed, CopyOnce, Final": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `CREATE FUNCTION pg_temp.refuse(bigint) RETURNS boolean LANGUAGE plpgsql AS $$
				BEGIN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'as ordered'; END $$;
			CREATE TEMPORARY TABLE refused (id bigint PRIMARY KEY CHECK (pg_temp.refuse(id))) ON COMMIT DROP`)
		if err != nil {
			return err
		}
		refused := idem.Target{Table: pgx.Identifier{"pg_temp", "refused"}, Columns: []string{"id"}, Key: []string{"id"}}
		_, _ = idem.CopyOnce(ctx, tx, refused, pgx.CopyFromRows([][]any{{int64(1)}}))
		return idem.Final(created)
	},
	"swallowed, batch, FinalKeep": func(ctx context.Context, tx pgx.Tx) error {
		_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(raise("40P01"))
			return tx.SendBatch(ctx, b).Close()
		})
		return idem.FinalKeep(created)
	},
}

func TestConflict_OwnTransactionIsRepeated(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for what, conflict := range conflicts {
		key, calls := newKey(t), 0
		got, err := s.Do(t.Context(), key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			if calls++; calls < 3 {
				r, err := effects.write(key.Key, idem.Reply{Status: 500}, nil)(ctx, tx)
				if err == nil {
					err = conflict(ctx, tx)
				}
				return r, err
			}
			return effects.write(key.Key, created, nil)(ctx, tx)
		})
		if calls != 3 {
			t.Errorf("%s: ran %d times, want 3", what, calls)
		}
		wantResult(t, got, err, created, false)
		effects.want(t, key.Key, 1)
		wantReplay(t, s, key, created)
	}
}

func TestConflict_CallersTransactionIsTheCallersToRepeat(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	for what, conflict := range conflicts {
		key, tx := newKey(t), begin(t, pool, pgx.TxOptions{})
		_, err := s.DoTx(t.Context(), tx, key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
			r, err := effects.write(key.Key, created, nil)(ctx, tx)
			return r, errors.Join(err, conflict(ctx, tx))
		})
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok || !errors.Is(err, idem.ErrRetryTx) {
			t.Errorf("%s: %v, want ErrRetryTx with the *pgconn.PgError", what, err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
			t.Errorf("%s: the transaction can't be used: %v", what, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		effects.want(t, key.Key, 0)
		wantFree(t, s, key)
	}
}

func TestConflict_TriesAreSpent(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t)
	s, key, calls := store(t, pool, idem.Config{}), newKey(t), 0
	_, err := s.Do(t.Context(), key, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		calls++
		_, err := tx.Exec(ctx, raise("40001"))
		return created, err
	})
	if _, ok := errors.AsType[*pgconn.PgError](err); !ok || !errors.Is(err, idem.ErrUnavailable) || !errors.Is(err, idem.ErrRetryTx) {
		t.Errorf("%v, want ErrUnavailable and ErrRetryTx with the *pgconn.PgError", err)
	}
	if calls != 10 {
		t.Errorf("ran %d times, want 10", calls)
	}
	wantFree(t, s, key)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Do(ctx, newKey(t), fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		_, err := tx.Exec(ctx, raise("40001"))
		cancel()
		return created, err
	})
	wantErr(t, err, context.Canceled)
}

// What the function deferred to COMMIT is an outcome too.
func TestConflict_AtCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects := store(t, pool, idem.Config{}), newLedger(t, pool)
	function := pgx.Identifier{"f_" + effects.name[1 : len(effects.name)-1][max(0, len(effects.name)-40):]}.Sanitize()
	exec(t, pool, `CREATE SEQUENCE `+function)
	exec(t, pool, `CREATE FUNCTION `+function+`() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('`+function+`') < 3 OR new.note LIKE 'x%' THEN RAISE EXCEPTION USING ERRCODE = split_part(new.note, ' ', 2); END IF; RETURN NULL; END $$`)
	exec(t, pool, `CREATE CONSTRAINT TRIGGER late AFTER INSERT ON `+effects.name+` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION `+function+`()`)

	key := newKey(t)
	got, err := s.Do(t.Context(), key, fp, nil, effects.write("a 40001", created, nil))
	wantResult(t, got, err, created, false)
	effects.want(t, "a 40001", 1)

	for _, state := range []string{"23514", "42P01", "P0001"} { // codes that mean something else in a statement of ours
		key = newKey(t)
		_, err = s.Do(t.Context(), key, fp, nil, effects.write("x "+state, created, nil))
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != state || errors.Is(err, idem.ErrFenced) || errors.Is(err, idem.ErrNotMigrated) {
			t.Errorf("%v, want the error of the trigger, %s", err, state)
		}
		effects.want(t, "x "+state, 0)
		wantFree(t, s, key)
	}
}

// Two transactions read what the other one writes.
func TestConflict_RealOnesAreRepeated(t *testing.T) {
	t.Parallel()
	for _, level := range levels[1:] {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := ownDatabase(t, fmt.Sprintf("default_transaction_isolation = '%s'", level))
			s, counter := store(t, pool, idem.Config{}), table(t, pool, "n int").Sanitize()
			exec(t, pool, "INSERT INTO "+counter+" VALUES (0)")
			calls := 0
			add := func(meet func()) work {
				return func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
					calls++
					var n int
					if err := tx.QueryRow(ctx, "SELECT n FROM "+counter).Scan(&n); err != nil {
						return idem.Reply{}, err
					}
					meet()
					_, err := tx.Exec(ctx, "UPDATE "+counter+" SET n = $1", n+1)
					return created, err
				}
			}
			met := false
			got, err := s.Do(t.Context(), newKey(t), fp, nil, add(func() {
				if !met {
					met = true
					got, err := s.Do(t.Context(), newKey(t), fp, &idem.Options{Wait: time.Second}, add(func() {}))
					wantResult(t, got, err, created, false)
				}
			}))
			wantResult(t, got, err, created, false)
			if n := value[int](t, pool, "SELECT n FROM "+counter); n != 2 || calls != 3 {
				t.Errorf("counted %d in %d calls, want 2 in 3", n, calls)
			}
		})
	}
}
