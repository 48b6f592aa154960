package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/jackc/pgx/v5"
)

const standbyNames = "synchronous_standby_names"

// checkReplication looks for standbys that may not have what was committed.
func checkReplication(ctx context.Context, v *visit) error {
	standbys, err := v.q.StandbyList(ctx)
	if err != nil {
		return err
	}
	settings, err := v.q.SettingList(ctx, []string{standbyNames})
	if err != nil {
		return err
	}
	var behind []string
	synchronous, hidden := 0, 0
	for _, s := range standbys {
		switch s.SyncState {
		case "sync", "quorum":
			synchronous++
		case "":
			hidden++
		default:
			behind = append(behind, standbyText(s))
		}
	}
	if hidden > 0 {
		v.unseenStats("whether the standbys are synchronous")
		return nil
	}
	waits := len(settings) > 0 && settings[0].Setting != ""
	v.judgeStandbys(synchronous, behind, waits)
	return nil
}

func standbyText(s doctordb.StandbyListRow) string {
	return cmp.Or(s.Name, "unnamed") + " at " + cmp.Or(s.Address, "a local socket")
}

func (v *visit) judgeStandbys(synchronous int, behind []string, waits bool) {
	list := strings.Join(behind, ", ")
	switch {
	case waits && synchronous == 0:
		v.weakens(standbyNames, "No synchronous standby is connected: every COMMIT waits for one, acquisitions and renewals too.",
			"-- bring a standby of "+standbyNames+" back; or, if a failover may lose commits:",
			"ALTER SYSTEM RESET "+standbyNames+";", "SELECT pg_reload_conf();")
	case synchronous == 0 && len(behind) > 0:
		v.weakens(list, "All standbys are asynchronous: a failover loses the newest commits, of fenced writes and stored replies too. "+
			"(Tokens rise all the same, and the nonce refuses a holder whose grant was lost.)",
			"-- with a second standby, so that one may be away:",
			"ALTER SYSTEM SET "+standbyNames+" = 'ANY 1 (*)';", "SELECT pg_reload_conf();")
	case len(behind) > 0:
		v.note(list, "This standby is asynchronous, others are not: never promote it while one of those is there.",
			"-- in Patroni: tags: {nofailover: true}")
	}
}

// checkSlots looks for slots that keep old rows, of a standby that is away, mostly.
func checkSlots(ctx context.Context, v *visit) error {
	slots, err := v.q.SlotList(ctx)
	for _, s := range slots {
		if s.Xids < v.opts.Limits.SlotXIDs {
			continue
		}
		remedy := []string{fmt.Sprintf("SELECT pg_drop_replication_slot(%s);", literal(s.Name))}
		if s.Active {
			remedy = []string{"-- end the long query on the standby, or turn hot_standby_feedback off there"}
		}
		v.note("slot "+s.Name, fmt.Sprintf("The replication slot keeps rows that were removed up to %d transactions ago: "+
			"each heartbeat leaves one more row behind.", s.Xids), remedy...)
	}
	return err
}

// literal quotes a string for SQL, whatever standard_conforming_strings is.
func literal(s string) string {
	quoted := "'" + strings.ReplaceAll(strings.ReplaceAll(s, "'", "''"), `\`, `\\`) + "'"
	if strings.Contains(s, `\`) {
		return "E" + quoted
	}
	return quoted
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }
