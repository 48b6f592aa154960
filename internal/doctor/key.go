package doctor

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/gen/doctordb"
)

const keyTable = "gatepost.idempotency_keys"

// backlogMost is how far a backlog is counted.
const backlogMost = 10_000

// checkKeyBacklog looks for keys that nobody collects.
func checkKeyBacklog(ctx context.Context, v *visit) error {
	row, err := v.q.KeyBacklog(ctx, doctordb.KeyBacklogParams{AgeUs: v.opts.Limits.Backlog.Microseconds(), Most: backlogMost})
	if err != nil || row.Expired == 0 {
		return err
	}
	count := counted(row.Expired, "key", "keys")
	if row.Expired == backlogMost {
		count = "At least " + count
	}
	v.note(keyTable, fmt.Sprintf("%s expired long ago, the oldest %s ago: nobody collects them.", count, since(row.AgeUs)),
		"gatepost gc", "-- and call Store.GC from time to time, in the service or by cron")
	return nil
}

// checkKeyRunning looks for claims that nobody will finish.
func checkKeyRunning(ctx context.Context, v *visit) error {
	rows, err := v.q.KeyRunning(ctx, v.opts.Limits.Lapsed.Microseconds())
	for _, r := range rows {
		which := "lease_until < now()"
		if r.InTransaction {
			which = "lease_until IS NULL"
		}
		look := fmt.Sprintf("SELECT scope, key, created_at FROM %s WHERE operation = %s AND state = 1 AND %s;", keyTable, literal(r.Operation), which)
		if r.InTransaction {
			v.weakens("operation "+r.Operation, fmt.Sprintf("%s committed while it ran: its effect may be there without a reply, and a retry is told "+
				"that it runs.", counted(r.Claims, "claim", "claims")), "-- look what each of these has done, and forget it:", look)
			continue
		}
		v.note("operation "+r.Operation, fmt.Sprintf("%s lapsed, the first %s ago, and never taken over: whether the effect happened is in doubt.",
			counted(r.Claims, "claim", "claims"), since(r.AgeUs)), "-- call again with the same key, so that Recover asks; these are:", look)
	}
	return err
}
