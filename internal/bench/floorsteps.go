package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floors are those of the rows whose ratio is above its bar.
var floors = []floor{
	{"acquire", acquireSteps, explainAcquire},
	{"fenced", fencedSteps, explainFenced},
	{"idem", idemSteps, explainIdem},
	{"replay", replaySteps, nil},
}

// queued is a statement, and its arguments each time.
type queued struct {
	sql  string
	args func() []any
}

// inTrips is a transaction around an INSERT, with statements in the round trip of its BEGIN,
// and others in that of its COMMIT.
func inTrips(pool *pgxpool.Pool, insert string, begin, commit []queued) op {
	return func(ctx context.Context) error {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			batch := &pgx.Batch{}
			batch.BeginTx(pgx.TxOptions{})
			for _, q := range begin {
				batch.Queue(q.sql, q.args()...)
			}
			opened := conn.SendBatch(ctx, batch)
			tx := opened.Tx()
			err := opened.Close()
			if err == nil {
				_, err = tx.Exec(ctx, insert, note)
			}
			if err == nil && len(commit) > 0 {
				batch = &pgx.Batch{}
				for _, q := range commit {
					batch.Queue(q.sql, q.args()...)
				}
				batch.Queue("COMMIT")
				return tx.SendBatch(ctx, batch).Close()
			}
			if err != nil {
				rollback(ctx, tx)
				return err
			}
			return tx.Commit(ctx)
		})
	}
}

func none() []any { return nil }

// always has the same arguments.
func always(args ...any) func() []any { return func() []any { return args } }

// statementsOf runs statements one by one, each a transaction of its own.
func statementsOf(pool *pgxpool.Pool, all ...queued) op {
	return func(ctx context.Context) error {
		for _, q := range all {
			if _, err := pool.Exec(ctx, q.sql, q.args()...); err != nil {
				return err
			}
		}
		return nil
	}
}

// nonce is a UUID.
func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// What LeaseTake and LeaseFree write, by an UPDATE that neither locks nor looks.
const (
	bareTake = `UPDATE gatepost.leases SET token = token + 1, nonce = $2::text::uuid, holder = 'bench', acquired_at = clock_timestamp(),
		renewed_at = clock_timestamp(), expires_at = clock_timestamp() + interval '30 s', transitions = transitions + 1,
		data = NULL, reserved_for = NULL, reserved_until = NULL WHERE name = $1 AND slot = 0`
	bareFree = `UPDATE gatepost.leases SET nonce = NULL, holder = NULL, data = NULL, renewed_at = clock_timestamp(),
		expires_at = clock_timestamp(), reserved_for = NULL, reserved_until = NULL WHERE name = $1 AND slot = 0`
	unsynced = ` AND set_config('synchronous_commit', 'off', true) = 'off'`
)

func acquireSteps(ctx context.Context, e *env, pool *pgxpool.Pool, client *pglock.Client) ([]step, error) {
	name := e.lease("floor")
	if err := cycle(client, name)(ctx); err != nil { // makes the row
		return nil, err
	}
	_, err := e.admin.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+e.schema()+".floor (name text PRIMARY KEY, n bigint NOT NULL)")
	if err == nil {
		_, err = e.admin.Exec(ctx, "INSERT INTO "+e.schema()+".floor VALUES ($1, 0) ON CONFLICT DO NOTHING", name)
	}
	update := queued{"UPDATE " + e.schema() + ".floor SET n = n + 1 WHERE name = $1", always(name)}
	q := lockdb.New(pool)
	take := func(ctx context.Context) (lockdb.LeaseFreeParams, error) {
		id := nonce()
		token, err := q.LeaseTake(ctx, lockdb.LeaseTakeParams{Name: name, Nonce: id, Holder: "bench", TtlUs: 30_000_000})
		return lockdb.LeaseFreeParams{Name: name, Nonce: id, Token: token}, err
	}
	granted := queued{bareTake, func() []any { return []any{name, nonce()} }}
	return []step{
		{"two UPDATE commits", statementsOf(pool, update, update)},
		{"the same of a lease's row, whose token is in a second index", statementsOf(pool, granted, queued{bareFree, always(name)})},
		{"+ the second commit asynchronous", statementsOf(pool, granted, queued{bareFree + unsynced, always(name)})},
		{"+ conditions, a lock before the clock, a look for waiters: LeaseTake, LeaseFree", func(ctx context.Context) error {
			p, err := take(ctx)
			if err == nil {
				_, err = q.LeaseFree(ctx, p)
			}
			return err
		}},
		{"+ WaiterHoldOff, in the round trip of LeaseFree", func(ctx context.Context) error {
			p, err := take(ctx)
			if err != nil {
				return err
			}
			batch := &pgx.Batch{}
			batch.Queue(lockdb.WaiterHoldOff, 0)
			batch.Queue(lockdb.LeaseFree, p.Name, p.Slot, p.Nonce, p.Token)
			return pool.SendBatch(ctx, batch).Close()
		}},
		{"Acquire and Release", cycle(client, name)},
	}, err
}

// Parts of LeaseFenceFirst.
const (
	fenceKey     = ` FROM (SELECT l.expires_at FROM gatepost.leases AS l WHERE l.name = $1 AND l.slot = 0`
	fenceOwner   = ` AND l.token = $2 AND l.nonce = ($3::text)::uuid AND l.expires_at > clock_timestamp()`
	fenceLimit   = ` AND CASE WHEN current_setting('%') = '0' OR current_setting('%')::interval > $4::bigint * interval '1 ms' THEN set_config('%', $4::bigint::text, true) <> '' ELSE true END`
	fenceLock    = ` FOR KEY SHARE OFFSET 0) AS locked`
	fencePresent = ` AND set_config('gatepost.fence', pg_current_xact_id()::text || '/' || $5::text, true) <> ''`
)

func fencedSteps(ctx context.Context, e *env, pool *pgxpool.Pool, client *pglock.Client) ([]step, error) {
	_, err := e.admin.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+e.schema()+".fenced (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL)")
	if err != nil {
		return nil, err
	}
	insert := "INSERT INTO " + e.schema() + ".fenced (note) VALUES ($1)"
	name := e.lease("floor-fenced/" + rand.Text())
	lease, err := client.Acquire(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	id, err := nonceOf(ctx, e, name)
	limits := ""
	for _, setting := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		limits += replaced(fenceLimit, setting)
	}
	live := "SELECT (locked.expires_at > clock_timestamp()"
	inBegin := func(sql string, args ...any) op {
		return inTrips(pool, insert, []queued{{sql, always(args...)}}, nil)
	}
	return []step{
		{"BEGIN, INSERT, COMMIT", inTx(insert, pool.Begin)},
		{"+ SELECT 1 in BEGIN's round trip", inBegin("SELECT 1")},
		{"+ reading the lease's row for it", inBegin("SELECT locked.expires_at"+fenceKey+" OFFSET 0) AS locked", name)},
		{"+ FOR KEY SHARE", inBegin("SELECT locked.expires_at"+fenceKey+fenceLock, name)},
		{"+ token, nonce and the clock", inBegin(live+")"+fenceKey+fenceOwner+fenceLock, name, lease.Token(), id)},
		{"+ limits for the transaction", inBegin(live+")"+fenceKey+fenceOwner+limits+fenceLock, name, lease.Token(), id, 30_000)},
		{"+ what guards read, and what resolves a lost COMMIT", inBegin(live+fencePresent+"), pg_current_xact_id()::text, pg_postmaster_start_time()"+fenceKey+fenceOwner+limits+fenceLock,
			name, lease.Token(), id, 30_000, lease.Sequencer().String())},
		{"Lease.BeginTx, INSERT, Commit", inTx(insert, func(ctx context.Context) (pgx.Tx, error) { return lease.BeginTx(ctx, pgx.TxOptions{}) })},
	}, err
}

func nonceOf(ctx context.Context, e *env, name string) (id string, err error) {
	err = e.admin.QueryRow(ctx, "SELECT nonce::text FROM gatepost.leases WHERE name = $1", name).Scan(&id)
	return id, err
}

// keyColumns are those of a key whose reply is known.
const keyRow = ` (operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, status, body, body_len, created_at, done_at, expires_at)
	VALUES ($1, 'global', $2::text, 2, $3, 1, gen_random_uuid(), 1, 201, $4, 200, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 day')`

func idemSteps(ctx context.Context, e *env, pool *pgxpool.Pool, _ *pglock.Client) ([]step, error) {
	_, err := e.admin.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+e.schema()+".effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL);"+
		"CREATE TABLE IF NOT EXISTS "+e.schema()+".keys (LIKE gatepost.idempotency_keys INCLUDING ALL)")
	if err != nil {
		return nil, err
	}
	store, err := idem.New(pool, idem.Config{})
	insert := "INSERT INTO " + e.schema() + ".effect (note) VALUES ($1)"
	key, keys, print := "", e.schema()+".keys", idem.FingerprintOf([]byte(note))
	record := func(body []byte) queued { // a key that is there from the start on
		return queued{"INSERT INTO " + keys + keyRow, func() []any {
			key = rand.Text()
			return []any{e.operation(), key, print[:], body}
		}}
	}
	savepoint := queued{"SAVEPOINT effect", none}
	finish := queued{"UPDATE " + keys + " SET body = $3, done_at = clock_timestamp() WHERE operation = $1 AND scope = 'global' AND key = $2", func() []any {
		return []any{e.operation(), key, reply.Body}
	}}
	return []step{
		{"BEGIN, INSERT, COMMIT", inTx(insert, pool.Begin)},
		{"+ SELECT 1 in BEGIN's round trip", inTrips(pool, insert, []queued{{"SELECT 1", none}}, nil)},
		{"+ for it, the key with its reply, as if that were known", inTrips(pool, insert, []queued{record(reply.Body)}, nil)},
		{"+ the reply behind the effect, in COMMIT's round trip", inTrips(pool, insert, []queued{record(nil)}, []queued{finish})},
		{"+ a savepoint for the effect", inTrips(pool, insert, []queued{record(nil), savepoint}, []queued{finish})},
		{"Store.Do", func(ctx context.Context) error { return e.do(ctx, store, rand.Text(), insert) }},
	}, err
}

func replaySteps(ctx context.Context, e *env, pool *pgxpool.Pool, _ *pglock.Client) ([]step, error) {
	_, err := e.admin.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+e.schema()+".replayed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL)")
	if err != nil {
		return nil, err
	}
	store, err := idem.New(pool, idem.Config{})
	if err != nil {
		return nil, err
	}
	again := func(ctx context.Context) error {
		return e.do(ctx, store, "replayed", "INSERT INTO "+e.schema()+".replayed (note) VALUES ($1)")
	}
	key := e.key("replayed")
	return []step{
		{"SELECT 1", func(ctx context.Context) error {
			var one int
			return pool.QueryRow(ctx, "SELECT 1").Scan(&one)
		}},
		{"the key's row by its primary key: KeyProbe", func(ctx context.Context) error {
			_, err := idemdb.New(pool).KeyProbe(ctx, idemdb.KeyProbeParams{Operation: key.Operation, Scope: string(key.Scope), Key: key.Key})
			return err
		}},
		{"Store.Do of a key that is done", again},
	}, again(ctx)
}
