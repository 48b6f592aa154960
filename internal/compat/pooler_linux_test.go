package compat_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// envPooler is set to "required" where the lack of PgBouncer is a failure.
const envPooler = "GATEPOST_PGBOUNCER"

// pooledBy starts a PgBouncer in transaction mode in front of the database of a URL,
// with that many connections to it, for the length of the test. It returns the URL of
// the same database through it.
func pooledBy(t *testing.T, direct string, size int) string {
	t.Helper()
	return pooled(t, direct, size, "transaction")
}

// pooled is pooledBy in any of PgBouncer's modes.
func pooled(t *testing.T, direct string, size int, mode string) string {
	t.Helper()
	binary := pgbouncer(t)
	dir, account := serverDir(t)
	addr := freeAddr(t)
	conn, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "users.txt"), fmt.Sprintf("%q %q\n", conn.User, conn.Password))
	config := filepath.Join(dir, "pgbouncer.ini")
	write(t, config, settings(conn, addr, size, mode))

	cmd := osexec.Command(binary, config)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account, Pdeathsig: syscall.SIGKILL}
	exited := run(t, cmd)
	through := url.URL{
		Scheme: "postgres", User: url.UserPassword(conn.User, conn.Password), Host: addr.String(),
		Path: "/app", RawQuery: "sslmode=disable",
	}
	eventually(t, "a connection through "+binary, func() bool {
		select {
		case <-exited:
			t.Fatalf("%s ended", binary) // run's cleanup shows what it said
		default:
		}
		conn, err := pgx.Connect(t.Context(), through.String())
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
	return through.String()
}

// settings leave the defaults where they matter: no reset of a connection between two
// transactions, and max_prepared_statements.
func settings(conn *pgx.ConnConfig, addr *net.TCPAddr, size int, mode string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return strings.Join([]string{
		"[databases]",
		fmt.Sprintf("app = host=%s port=%d dbname=%s user=%s", quote(conn.Host), conn.Port, quote(conn.Database), quote(conn.User)),
		"[pgbouncer]",
		"listen_addr = " + addr.IP.String(),
		"listen_port = " + strconv.Itoa(addr.Port),
		"unix_socket_dir =",
		"auth_type = trust",
		"auth_file = users.txt",
		"admin_users = " + conn.User,
		"pool_mode = " + mode,
		"default_pool_size = " + strconv.Itoa(size),
		"min_pool_size = " + strconv.Itoa(size), // and the next transaction on the next one
		"server_round_robin = 1",
		"ignore_startup_parameters = extra_float_digits", // lib/pq's
	}, "\n") + "\n"
}

// pgbouncer finds the binary, which Debian has where only root's PATH goes.
func pgbouncer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := osexec.LookPath(name); err == nil {
			return path
		}
	}
	const remedy = "pgbouncer is neither in PATH nor in /usr/sbin; on Debian: apt-get install pgbouncer"
	if os.Getenv(envPooler) == "required" {
		t.Fatal(remedy)
	}
	t.Skip(remedy)
	return ""
}

// serverDir is a directory of the user that PgBouncer runs as: that of the temporary
// PostgreSQL, whose socket is closed to others. PgBouncer refuses root, too.
func serverDir(t *testing.T) (string, *syscall.Credential) {
	t.Helper()
	if os.Geteuid() != 0 {
		return t.TempDir(), nil
	}
	dir, err := os.MkdirTemp("", "gatepost-pgbouncer-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// run starts cmd and kills it when the test ends. What it printed is shown when the
// test failed.
func run(t *testing.T, cmd *osexec.Cmd) <-chan struct{} {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(exited)
		// Pdeathsig comes when the thread that forked ends: this one has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was killed
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("%s printed:\n%s", cmd, &out)
		}
	})
	return exited
}

func freeAddr(t *testing.T) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// prepares says whether a PgBouncer keeps track of prepared statements, which pgx's
// default exec mode needs: from 1.24 on by default, from 1.21 on when it is told to.
func prepares(t *testing.T, pooled string) bool {
	t.Helper()
	cfg, err := pgx.ParseConfig(pooled)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Database = "pgbouncer" // its console
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	ctx := t.Context()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, "SHOW CONFIG")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if s["key"] == "max_prepared_statements" {
			return s["value"] != "0"
		}
	}
	return false
}
