package bench

import (
	"context"
	"strings"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// explainer runs statements of Gatepost's under EXPLAIN, in a transaction that is rolled
// back.
type explainer struct {
	tx    pgx.Tx
	plans []Plan
	err   error
}

// run runs one that is sqlc's.
func (x *explainer) run(ctx context.Context, sql string, args ...any) {
	if x.err != nil {
		return
	}
	rows, err := x.tx.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS, WAL, COSTS OFF, TIMING OFF, SUMMARY OFF) "+sql, args...)
	if err != nil {
		x.err = err
		return
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	x.err = err
	x.plans = append(x.plans, Plan{Statement: sqlcName.FindStringSubmatch(sql)[1], Lines: lines})
}

// explain explains a floor's statements, several times: the first reads catalogs.
func (e *env) explain(ctx context.Context, f floor, client *pglock.Client) (plans []Plan, err error) {
	if f.plans == nil {
		return nil, nil
	}
	for range 3 {
		tx, err := e.admin.Begin(ctx)
		if err != nil {
			return nil, err
		}
		x := &explainer{tx: tx}
		x.err = f.plans(ctx, e, x, client)
		rollback(ctx, tx)
		if x.err != nil {
			return nil, x.err
		}
		plans = x.plans
	}
	return plans, nil
}

func explainAcquire(ctx context.Context, e *env, x *explainer, _ *pglock.Client) error {
	name, id := e.lease("floor"), nonce()
	x.run(ctx, lockdb.LeaseTake, id, "bench", 30_000_000, nil, name, 0)
	var token int64
	if x.err == nil {
		x.err = x.tx.QueryRow(ctx, "SELECT token FROM gatepost.leases WHERE name = $1", name).Scan(&token)
	}
	x.run(ctx, lockdb.WaiterHoldOff, 0)
	x.run(ctx, lockdb.LeaseFree, name, 0, id, token)
	x.run(ctx, lockdb.WaiterWake, name, 0, nil)
	return x.err
}

func explainFenced(ctx context.Context, e *env, x *explainer, client *pglock.Client) error {
	name := e.lease("explained")
	lease, err := client.Acquire(ctx, name, nil)
	if err != nil {
		return err
	}
	id, err := nonceOf(ctx, e, name)
	if err == nil {
		x.run(ctx, lockdb.LeaseFenceFirst, lease.Sequencer().String(), name, 0, lease.Token(), id, 30_000)
		err = x.err
	}
	rollback(ctx, x.tx)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

func explainIdem(ctx context.Context, e *env, x *explainer, _ *pglock.Client) error {
	operation, key, id, print := e.operation(), "explained", nonce(), idem.FingerprintOf([]byte(note))
	x.run(ctx, idemdb.KeyProbe, operation, "global", key)
	x.run(ctx, idemdb.KeyClaim, operation, "global", key, print[:], 1, id, 86_401_000_000, true, 100, 1) // with the slack that makes the end an update of no index
	x.run(ctx, idemdb.KeyFinish, 2, 201, nil, reply.Body, len(reply.Body), nil, 86_400_000_000, operation, "global", key, id)
	return x.err
}

// replaced names the setting of a limit.
func replaced(limit, setting string) string { return strings.ReplaceAll(limit, "%", setting) }
