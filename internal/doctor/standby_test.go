package doctor_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// standby streams from a server as a standby does, keeps nothing, and says that it has
// everything.
type standby struct {
	conn    *pgconn.PgConn
	flushed uint64
}

func newStandby(t *testing.T, server, name string) *standby {
	t.Helper()
	cfg, err := pgconn.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["replication"], cfg.RuntimeParams["application_name"] = "true", name
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &standby{conn: conn}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	rows, err := conn.Exec(t.Context(), "IDENTIFY_SYSTEM").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	position := string(rows[0].Rows[0][2])
	var high, low uint64
	if _, err := fmt.Sscanf(position, "%X/%X", &high, &low); err != nil {
		t.Fatal(err)
	}
	s.flushed = high<<32 | low
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + position})
	s.answer(t)
	return s
}

// answer says that all is flushed, until the server shows that it has read it.
func (s *standby) answer(t *testing.T) {
	t.Helper()
	status := []byte{'r'}
	for range 3 { // written, flushed, applied
		status = binary.BigEndian.AppendUint64(status, s.flushed+1)
	}
	status = binary.BigEndian.AppendUint64(status, 0)
	s.conn.Frontend().Send(&pgproto3.CopyData{Data: append(status, 0)})
	if err := s.conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestReplication_FindsStandbysThatMayMissCommits(t *testing.T) {
	t.Parallel()
	own := &server{settings: map[string]string{"fsync": "on", "full_page_writes": "on"}}
	t.Cleanup(func() { _ = own.stop() })
	database := own.database(t)
	finds := func(when string, want ...string) {
		t.Helper()
		until(t, when, func() bool {
			got := found(examine(t, database, patient()))
			if !slices.Equal(got, want) {
				t.Logf("%s it finds %q", when, got)
			}
			return slices.Equal(got, want)
		})
	}
	newStandby(t, database, "one")
	finds("with one standby", "replication weakens one at a local socket")
	r := examine(t, database, patient())
	heal(t, database, r)
	finds("with one that is waited for")
	run(t, database, "ALTER SYSTEM SET synchronous_standby_names = 'one'", "SELECT pg_reload_conf()")
	newStandby(t, database, "two")
	finds("with two, one of which is waited for", "replication note two at a local socket")
	run(t, database, "ALTER SYSTEM SET synchronous_standby_names = 'three'", "SELECT pg_reload_conf()")
	finds("with none that is waited for", "replication weakens synchronous_standby_names")

	role := roleName(database)
	run(t, database, "SET synchronous_commit = local; CREATE ROLE "+role+" LOGIN")
	r = examine(t, as(t, database, role), patient())
	if u := result(t, r, "replication"); len(u.Findings) != 0 || len(u.Unseen) != 1 || !strings.Contains(u.Unseen[0].Grants[0], "pg_read_all_stats") {
		t.Errorf("a role that may not see standbys is told %+v", u)
	}
}

// A subscriber and a base backup are no standbys: nobody promotes them.
func TestReplication_LeavesSubscribersAndBackupsOut(t *testing.T) {
	t.Parallel()
	own := &server{settings: map[string]string{"fsync": "on", "full_page_writes": "on", "wal_level": "logical"}}
	t.Cleanup(func() { _ = own.stop() })
	database := own.database(t)
	run(t, database, "CREATE PUBLICATION p", "SELECT pg_create_logical_replication_slot('subscriber', 'pgoutput')")
	for mode, command := range map[string]string{
		"database": "START_REPLICATION SLOT subscriber LOGICAL 0/0 (proto_version '1', publication_names 'p')",
		"true":     "BASE_BACKUP", // which nobody reads
	} {
		cfg, err := pgconn.ParseConfig(database)
		if err != nil {
			t.Fatal(err)
		}
		cfg.RuntimeParams["replication"] = mode
		conn, err := pgconn.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Conn().Close() }) // not in order: it is in the middle of an answer
		conn.Frontend().Send(&pgproto3.Query{String: command})
		if err := conn.Frontend().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	conn := connect(t, database)
	until(t, "both", func() bool {
		var states string
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(string_agg(state, ' ' ORDER BY state), '') FROM pg_stat_replication").Scan(&states); err != nil {
			t.Fatal(err)
		}
		return states == "backup streaming"
	})
	if f := result(t, examine(t, database, patient()), "replication").Findings; len(f) != 0 {
		t.Errorf("of a subscriber and a backup it says %+v", f)
	}
}

func TestReplication_NobodyConnected(t *testing.T) {
	t.Parallel()
	if f := doctor.JudgeStandbys(0, nil, false); len(f) != 0 {
		t.Errorf("of a server alone it says %+v", f)
	}
	if f := doctor.JudgeStandbys(0, nil, true); len(f) != 1 || f[0].Severity != doctor.Weakens {
		t.Errorf("of one that waits for nobody it says %+v", f)
	}
	if f := doctor.JudgeStandbys(2, nil, true); len(f) != 0 {
		t.Errorf("of one whose standbys are synchronous it says %+v", f)
	}
}

func TestSlots_FindsTheOneThatKeepsRows(t *testing.T) {
	t.Parallel()
	own := &server{settings: map[string]string{"fsync": "on", "full_page_writes": "on"}}
	t.Cleanup(func() { _ = own.stop() })
	database := own.database(t)
	run(t, database, "SELECT pg_create_physical_replication_slot('away', true)")
	cfg, err := pgconn.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var position string
	if err := connect(t, database).QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&position); err != nil {
		t.Fatal(err)
	}
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION SLOT away PHYSICAL " + position})
	feedback := binary.BigEndian.AppendUint64([]byte{'h'}, 0)
	feedback = binary.BigEndian.AppendUint32(feedback, oldestXID(t, database)) // xmin
	feedback = append(feedback, make([]byte, 12)...)                           // its epoch, catalog_xmin
	conn.Frontend().Send(&pgproto3.CopyData{Data: feedback})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	opts := patient()
	opts.Limits.SlotXIDs = 1
	finds := func() bool { return slices.Contains(found(examine(t, database, opts)), "slot note slot away") }
	until(t, "the feedback", finds)
	if f := result(t, examine(t, database, opts), "slot").Findings; len(f) != 1 || !strings.HasPrefix(f[0].Remedy[0], "-- end the long query on the standby") {
		t.Errorf("of a slot in use it says %+v", f) // which can't be dropped
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the standby's end", func() bool {
		r := examine(t, database, opts)
		f := result(t, r, "slot").Findings
		return len(f) == 1 && f[0].Remedy[0] == "SELECT pg_drop_replication_slot('away');" && len(found(r)) == 1
	})
	if got := found(examine(t, database, patient())); len(got) != 0 {
		t.Errorf("of a young one it finds %q", got)
	}
	heal(t, database, examine(t, database, opts))
	if finds() {
		t.Error("the remedy doesn't help")
	}
}

// oldestXID is a transaction id that is not the newest.
func oldestXID(t *testing.T, database string) (xid uint32) {
	t.Helper()
	conn := connect(t, database)
	err := conn.QueryRow(t.Context(), "SELECT (txid_current() - 5)::text::bigint").Scan(&xid)
	if err != nil {
		t.Fatal(err)
	}
	return xid
}

func TestStandby_IsToldAndTheRestAsksThePrimary(t *testing.T) {
	t.Parallel()
	database := replica(t)
	r := examine(t, database, patient())
	if got := found(r); !slices.Equal(got, []string{"standby weakens this server"}) {
		t.Errorf("it found %q", got)
	}
	var skipped []string
	for _, result := range r.Results {
		if strings.Contains(result.Skipped, "ask the primary") {
			skipped = append(skipped, result.Check)
		}
	}
	want := []string{"synchronous-commit", "replication", "prepared", "fenced", "horizon", "slot", "dead-rows", "hot-share", "wraparound"}
	if !r.Standby || !slices.Equal(skipped, want) {
		t.Errorf("on a standby it leaves out %q, want %q", skipped, want)
	}
}

// replica is a database of a server that was made a standby, of a primary that is gone.
func replica(t *testing.T) string {
	t.Helper()
	own := &server{settings: map[string]string{"fsync": "on", "full_page_writes": "on"}}
	t.Cleanup(func() { _ = own.stop() })
	database := own.database(t)
	var data string
	if err := connect(t, database).QueryRow(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	run(t, database, "COPY (SELECT) TO '"+data+"/standby.signal'")
	if err := own.temp.Restart(t.Context(), pgtemp.Fast); err != nil {
		t.Fatal(err)
	}
	return database
}
