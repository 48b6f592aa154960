package doctor

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/jackc/pgx/v5"
)

func checkStandby(_ context.Context, v *visit) error {
	if v.report.Standby {
		v.weakens("this server", "It is a standby: nothing can be acquired here, and what is read here may be old.",
			"-- connect to the primary: add target_session_attrs=read-write to the URL, and name all hosts in it")
	}
	return nil
}

// The versions that Gatepost is tested on.
const (
	oldest = 14
	newest = 18
)

func checkVersion(_ context.Context, v *visit) error {
	v.judgeVersion(int(v.versionNum / 10000))
	return nil
}

func (v *visit) judgeVersion(major int) {
	switch object := fmt.Sprintf("PostgreSQL %d", major); {
	case major < oldest:
		v.weakens(object, fmt.Sprintf("Gatepost needs PostgreSQL %d to %d.", oldest, newest),
			"-- upgrade the server: https://www.postgresql.org/docs/current/upgrading.html")
	case major > newest:
		v.note(object, fmt.Sprintf("This version of Gatepost was tested on PostgreSQL %d to %d.", oldest, newest),
			"go install github.com/gatepost/gatepost/cmd/gatepost@latest")
	}
}

// checkFsync looks at the settings without which a crash loses what was committed, or
// the whole database.
func checkFsync(ctx context.Context, v *visit) error {
	settings, err := v.q.SettingList(ctx, []string{"fsync", "full_page_writes"})
	for _, s := range settings {
		if s.Setting == "off" {
			v.weakens(s.Name, s.Name+" is off: a crash of the machine can lose commits and leave tables corrupt, leases and tokens too.",
				fmt.Sprintf("ALTER SYSTEM SET %s = on;", s.Name), "SELECT pg_reload_conf();")
		}
	}
	return err
}

const synchronousCommit = "synchronous_commit"

// checkSynchronousCommit looks for sessions whose COMMIT returns before it is durable.
// pglock raises it for its own transactions, not for the caller's.
func checkSynchronousCommit(ctx context.Context, v *visit) error {
	return v.eachSetting(ctx, synchronousCommit, func(where, setting string, remedy ...string) {
		switch setting {
		case "off":
			v.weakens(where, "synchronous_commit is off: a crash can lose what a fenced or an idempotent transaction has committed. "+
				"(Acquisitions and renewals turn it on for themselves.)", remedy...)
		case "local":
			v.note(where, "synchronous_commit is local: no standby is waited for, and a failover can lose what a fenced or "+
				"an idempotent transaction has committed.", remedy...)
		}
	})
}

// checkReplicationRole looks for sessions in which triggers don't fire.
func checkReplicationRole(ctx context.Context, v *visit) error {
	if v.versionNum >= 150000 {
		roles, err := v.q.TriggersOffGrants(ctx)
		if err != nil {
			return err
		}
		for _, role := range roles {
			v.tellTriggersOff(role)
		}
	}
	return v.eachSetting(ctx, "session_replication_role", func(where, setting string, remedy ...string) {
		if setting != "origin" {
			v.weakens(where, fmt.Sprintf("session_replication_role is %s: triggers don't fire, neither guards nor the one that keeps "+
				"an effect and its record together.", setting), remedy...)
		}
	})
}

// checkPresets looks for fences that a role brings to its sessions: everybody can read
// them, with the nonce.
func checkPresets(ctx context.Context, v *visit) error {
	rows, err := v.q.RoleSettings(ctx, []string{"gatepost.fence", "gatepost.fenced"})
	for _, r := range rows {
		where, remedy := place(r)
		v.weakens(where, fmt.Sprintf("It brings %s to its sessions: every role can read that, and the nonce in it.", r.Name), remedy)
	}
	return err
}

func (v *visit) tellTriggersOff(role string) {
	who, grantee := "role "+role, ident(role)
	if role == "" {
		who, grantee = "all roles", "PUBLIC"
	}
	v.note(who, "It may set session_replication_role, without being a superuser: no guard binds who does.",
		fmt.Sprintf("REVOKE SET ON PARAMETER session_replication_role FROM %s;", grantee))
}

// eachSetting tells a setting wherever it comes from: the server, this session's URL,
// databases and roles.
func (v *visit) eachSetting(ctx context.Context, name string, tell func(where, setting string, remedy ...string)) error {
	settings, err := v.q.SettingList(ctx, []string{name})
	if err != nil {
		return err
	}
	for _, s := range settings {
		switch s.Source {
		case "client":
			tell("this connection", s.Setting, "-- take it out of the database URL or PGOPTIONS")
		case "global", "database", "user", "database user": // told below
		default:
			tell("the server", s.Setting, fmt.Sprintf("ALTER SYSTEM RESET %s;", name), "SELECT pg_reload_conf();",
				"-- and take it out of postgresql.conf, if it is there")
		}
	}
	rows, err := v.q.RoleSettings(ctx, []string{name})
	for _, r := range rows {
		where, remedy := place(r)
		tell(where, r.Setting, remedy)
	}
	return err
}

// place is where a setting was made, and the statement that unmakes it.
func place(r doctordb.RoleSettingsRow) (where, remedy string) {
	role, database := ident(r.Role), pgx.Identifier{r.Database}.Sanitize()
	switch {
	case r.Database == "" && r.Role == "":
		return "all roles", fmt.Sprintf("ALTER ROLE ALL RESET %s;", r.Name)
	case r.Role == "":
		return "database " + r.Database, fmt.Sprintf("ALTER DATABASE %s RESET %s;", database, r.Name)
	case r.Database == "":
		return "role " + r.Role, fmt.Sprintf("ALTER ROLE %s RESET %s;", role, r.Name)
	default:
		return fmt.Sprintf("role %s in database %s", r.Role, r.Database), fmt.Sprintf("ALTER ROLE %s IN DATABASE %s RESET %s;", role, database, r.Name)
	}
}
