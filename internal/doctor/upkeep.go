package doctor

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/gatepost/gatepost/internal/operator"
)

// checkHorizon looks for transactions that keep VACUUM, and updates within a page, from
// removing old rows.
func checkHorizon(ctx context.Context, v *visit) error {
	v.unseenStats("transactions of other roles")
	rows, err := v.q.HorizonList(ctx, v.opts.Limits.Open.Microseconds())
	for _, r := range rows {
		who := operator.Locker{PID: int(r.Pid), GID: r.Gid, User: r.Username, Application: r.Application}
		remedy := fmt.Sprintf("SELECT pg_terminate_backend(%d);", r.Pid)
		if r.Gid != "" {
			remedy = fmt.Sprintf("ROLLBACK PREPARED %s;", literal(r.Gid))
		}
		state := ""
		if r.State != "" {
			state = ", " + r.State
		}
		v.note(who.String(), fmt.Sprintf("A transaction is open for %s%s: until it ends, no row that was updated since is removed, "+
			"and each heartbeat leaves one.", since(r.OpenUs), state), remedy)
	}
	return err
}

// checkDeadRows looks for tables that are mostly old rows.
func checkDeadRows(ctx context.Context, v *visit) error {
	rows, err := v.q.TableUse(ctx)
	for _, r := range rows {
		if r.Dead >= v.opts.Limits.DeadRows && r.Dead > 2*r.Live {
			v.note(qualified(r.Name), fmt.Sprintf("%d of its rows are dead and %d live: VACUUM doesn't keep up, or may not remove them.", r.Dead, r.Live),
				fmt.Sprintf("VACUUM gatepost.%s;", r.Name))
		}
	}
	return err
}

// hotShare is the least share of heartbeats, in percent, that should stay in their page
// and off the indexes.
const hotShare = 95

// checkHotShare looks at the share of HOT updates among those that could be: an
// acquisition can't, since it changes the token. Rows that were deleted took the number
// of their acquisitions along, so with many of them there is nothing to say.
func checkHotShare(ctx context.Context, v *visit) error {
	tables, err := v.q.TableUse(ctx)
	if err != nil {
		return err
	}
	leases, err := v.q.LeaseClock(ctx)
	for _, t := range tables {
		if t.Name == leaseTable && t.Deletes <= t.Updates/100 {
			v.judgeHotShare(t, leases.Transitions)
		}
	}
	return err
}

func (v *visit) judgeHotShare(t doctordb.TableUseRow, acquisitions int64) {
	heartbeats := t.Updates - min(acquisitions, t.Updates-t.HotUpdates)
	if heartbeats < v.opts.Limits.HotUpdates || t.HotUpdates*100 >= heartbeats*hotShare {
		return
	}
	v.note("gatepost.leases", fmt.Sprintf("Of %d heartbeats and releases, %d %% stayed off the indexes, and it should be %d: "+
		"an index too many, a full page, or a transaction that keeps old rows.", heartbeats, t.HotUpdates*100/heartbeats, hotShare),
		"-- do what extra-index, fillfactor and horizon say, if they do; then count anew:",
		"VACUUM gatepost.leases;", "SELECT pg_stat_reset_single_table_counters('gatepost.leases'::regclass);")
}

// checkAutovacuum looks for tables that nobody cleans.
func checkAutovacuum(ctx context.Context, v *visit) error {
	for _, name := range v.tableNames() {
		if on, set := option(v.tables[name], "autovacuum_enabled"); set && isOff(on) {
			v.note(qualified(name), "Autovacuum is disabled for it: it grows with each heartbeat or key.",
				fmt.Sprintf("ALTER TABLE gatepost.%s RESET (autovacuum_enabled);", name))
		}
	}
	settings, err := v.q.SettingList(ctx, []string{"autovacuum", "track_counts"})
	for _, s := range settings {
		if s.Setting == "off" {
			v.note(s.Name, s.Name+" is off: no table is cleaned by itself, and those that change most grow most.",
				fmt.Sprintf("ALTER SYSTEM SET %s = on;", s.Name), "SELECT pg_reload_conf();")
		}
	}
	return err
}

// isOff reads a boolean storage parameter as the server does: as it was written.
func isOff(value string) bool {
	switch value {
	case "off", "false", "no", "0", "f", "n", "of", "fa", "fal", "fals":
		return true
	default:
		return false
	}
}

// checkWraparound looks for tables whose oldest row locks, or rows, are too many
// transactions old. Many fenced transactions at once on one lease use up sets of them.
func checkWraparound(_ context.Context, v *visit) error {
	for _, name := range v.tableNames() {
		t := v.tables[name]
		for _, age := range []struct {
			n    int64
			what string
		}{{t.Xids, "transactions"}, {t.Multixacts, "sets of transactions (multixacts)"}} {
			if age.n >= v.opts.Limits.TableXIDs {
				v.note(qualified(name), fmt.Sprintf("It was last frozen %d %s ago: at 2,000,000,000 the server refuses to write.", age.n, age.what),
					fmt.Sprintf("VACUUM (FREEZE) gatepost.%s;", name))
			}
		}
	}
	return nil
}
