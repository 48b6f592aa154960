package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// nowhere is an address of a server that isn't there, in a URL with a password.
const nowhere = "postgres://web:hush-hush@127.0.0.1:1/app?sslmode=disable"

// says runs gatepost, which fails with just that text.
func says(t *testing.T, url, want string, args ...string) {
	t.Helper()
	r := gatepost(t, url, args...)
	if r.code != 1 || r.stdout != "" || r.stderr != "gatepost: "+want+"\n" {
		t.Errorf("with %s, %q: exit code %d, %q and %q, want\n%q", url, args, r.code, r.stdout, r.stderr, want)
	}
}

func TestConnect_SaysInOneLineWhatToCorrectWhere(t *testing.T) {
	t.Parallel()
	const none = "no connection to the database: "
	says(t, nowhere, none+"nothing listens at 127.0.0.1:1; start PostgreSQL there, or correct the host and the port in DATABASE_URL", "ls")
	says(t, "", none+"nothing listens at 127.0.0.1:1; start PostgreSQL there, or correct the host and the port in --database-url", "ls", "--database-url", nowhere)
	says(t, "postgres://127.0.0.1/app?port=1", none+"nothing listens at 127.0.0.1:1; start PostgreSQL there, or correct the host and the port in DATABASE_URL", "ls")
	says(t, "host=/no/where dbname=app", none+"nothing listens at /no/where/.s.PGSQL.5432; start PostgreSQL, or correct the host in DATABASE_URL, and PGPORT", "ls")
	says(t, "postgres://no-such-host.invalid/app", none+`no host is called "no-such-host.invalid"; correct the host in DATABASE_URL`, "ls")
	says(t, "postgres://127.0.0.1:1,127.0.0.1:2/app", none+"nothing listens at 127.0.0.1:1 and 127.0.0.1:2; start PostgreSQL there, or correct the host and the port in DATABASE_URL", "ls")

	cmd := program(t, "", "ls")
	cmd.Env = append(cmd.Env, "DATABASE_URL=", "PGHOST=/no/where", "PGPORT=77")
	if r := ended(t, cmd); r.code != 1 || r.stderr != "gatepost: "+none+"nothing listens at /no/where/.s.PGSQL.77; start PostgreSQL, or say where it is: --database-url, DATABASE_URL or PGHOST\n" {
		t.Errorf("with PGHOST: %+v", r)
	}
	for _, unreadable := range []string{"postgres://web:hush-hush@[::1", "mysql://web:hush-hush@db/app", "postgres://web:hush-hush@db/app?sslmode=maybe", "hush-hush"} {
		r := gatepost(t, unreadable, "ls")
		want(t, r, 2, "DATABASE_URL can't be read: ")
		if strings.Contains(r.stderr, "hush") {
			t.Errorf("it gives the password away: %q", r.stderr)
		}
	}
}

func TestConnect_NoAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	address := silent.Addr().String()
	says(t, "postgres://"+address+"/app?connect_timeout=1&sslmode=disable",
		"no connection to the database: "+address+" doesn't answer; look for a firewall or a server that hangs, or correct the host and the port in DATABASE_URL", "ls")
}

func TestConnect_TheServerRefuses(t *testing.T) {
	t.Parallel()
	server, pool, host := passwordServer(t)
	const none = "no connection to the database: "
	at := host + "/.s.PGSQL.5432"
	in := func(user, database string) string {
		return "postgres://" + user + "@/" + database + "?host=" + url.QueryEscape(host)
	}
	says(t, in("web:wrong", "app"), none+`wrong password for role "web" at `+at+"; correct the password in DATABASE_URL", "ls")
	says(t, in("web", "app"), none+`role "web" needs a password at `+at+"; give it in PGPASSWORD or ~/.pgpass", "ls")
	says(t, in("web:right", "nowhere"), none+`there is no database "nowhere" at `+at+"; create it, or correct the database in DATABASE_URL", "ls")
	says(t, in("nobody", "app"), none+`role "nobody" does not exist at `+at+"; correct the role in DATABASE_URL, or pg_hba.conf of the server", "ls")
	says(t, in("web:right", "app"), "the database has no Gatepost schema, or an old one; run: gatepost migrate up", "ls")
	execute(t, pool, "REVOKE CONNECT ON DATABASE app FROM PUBLIC")
	says(t, in("web:right", "app"), none+`permission denied for database "app" at `+at+`; its owner can grant CONNECT to role "web"`, "ls")
	execute(t, pool, "GRANT CONNECT ON DATABASE app TO PUBLIC")

	want(t, gatepost(t, server.URL("app"), "migrate", "up"), 0, "")
	r := gatepost(t, in("web:right", "app"), "ls")
	want(t, r, 1, "permission denied for schema gatepost (SQLSTATE 42501); the schema's owner gives a role what it needs: gatepost migrate grants ROLE | psql")
	standbyRefuses(t, server)
}

func TestConnect_APoolerRefuses(t *testing.T) {
	t.Parallel()
	server, err := pgx.ParseConfig(pgtest.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	pooler, err := pgtemp.StartPooler(t.Context(), server.ConnString(), nil)
	if errors.Is(err, pgtemp.ErrNoPooler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pooler.Stop() })
	cfg, err := pgx.ParseConfig(pooler.URL(server.Database))
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf(" at %s/.s.PGSQL.%d; ", cfg.Host, cfg.Port)
	const none = "no connection to the database: "
	says(t, pooler.URL("nowhere"), none+`there is no database "nowhere"`+at+"create it, or correct the database in DATABASE_URL", "ls")
	says(t, cfg.ConnString()+"&search_path=app", none+"unsupported startup parameter: search_path"+at+
		"a pooler is there, which takes no such setting: leave it out of DATABASE_URL", "ls")
}

// standbyRefuses looks at leases where they can't be written.
func standbyRefuses(t *testing.T, server *pgtemp.Server) {
	t.Helper()
	standby, err := server.Standby(t.Context())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) { // the last thing that its test looks at
		t.Skipf("no standby can be made: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop() })
	for _, args := range [][]string{{"ls"}, {"show", "n"}, {"run", "n", "--no-wait", "--", "true"}, {"gc", "--limit", "1"}, {"migrate", "down"}, {"release", "n", "--token", "1"}} {
		r := gatepost(t, standby.URL("app"), args...)
		want(t, r, 1, "; this server is a standby, or read-only: connect to the primary, with target_session_attrs=read-write perhaps")
	}
}

// passwordServer has a role web that needs a password, and a database app.
func passwordServer(t *testing.T) (*pgtemp.Server, *pgxpool.Pool, string) {
	t.Helper()
	server, err := pgtemp.Start(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	pool := pgtest.Connect(t, server.URL(""))
	execute(t, pool, "CREATE DATABASE app")
	execute(t, pool, "CREATE ROLE web LOGIN PASSWORD 'right'")
	var data string
	if err := pool.QueryRow(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(data, "pg_hba.conf")
	rules, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("local all web scram-sha-256\n"), rules...), 0o600); err != nil {
		t.Fatal(err)
	}
	execute(t, pool, "SELECT pg_reload_conf()")
	host := pool.Config().ConnConfig.Host
	await(t, "the server asks for a password", func() bool {
		conn, err := pgxpool.New(t.Context(), "postgres://web@/app?host="+url.QueryEscape(host))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.Ping(t.Context()) != nil
	})
	return server, pool, host
}

func TestSchema_OfAnotherVersionIsNamed(t *testing.T) {
	t.Parallel()
	url := pgtest.Owner(t, pgtest.Database(t))
	pool := pgtest.Connect(t, url)
	role := pgtest.Role(t, url, migrations.Grants).Config().ConnConfig.RuntimeParams["role"]
	latest := migrations.Latest()
	execute(t, pool, "ALTER TABLE gatepost.leases RENAME COLUMN transitions TO terms")
	execute(t, pool, "INSERT INTO gatepost.schema_migrations (version_id, is_applied) VALUES ($1, true)", latest+1)
	newer := fmt.Sprintf("the database has version %d of Gatepost's schema, and this program knows only %d; use a newer one: go install github.com/gatepost/gatepost/cmd/gatepost@latest", latest+1, latest)
	says(t, url, newer, "ls")
	says(t, url, newer, "run", "n", "--no-wait", "--", "true")
	says(t, url, newer, "migrate", "down")
	want(t, gatepost(t, url, "migrate", "status"), 0, "of a newer gatepost than this")
	hidden := fmt.Sprintf("the database has another version of Gatepost's schema than this program's %d; its owner sees which: gatepost migrate status", latest)
	says(t, url+"&role="+role, hidden, "ls")

	execute(t, pool, "DELETE FROM gatepost.schema_migrations WHERE version_id > $1", latest-2)
	says(t, url, fmt.Sprintf("the database has version %d of Gatepost's schema, and this program needs %d; run: gatepost migrate up", latest-2, latest), "ls")
}
