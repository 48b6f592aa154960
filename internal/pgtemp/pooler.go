package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNoPooler says that this machine has no PgBouncer. Its text names the remedy.
var ErrNoPooler = errors.New("pgbouncer is neither in PATH nor in /usr/sbin; on Debian: apt-get install pgbouncer")

// poolerTimeout bounds the start of a PgBouncer, which takes 50 ms.
const poolerTimeout = time.Minute

// PoolerOptions say how a PgBouncer behaves. The zero value, and nil, are good for tests.
type PoolerOptions struct {
	// Mode is its pool_mode. Defaults to "transaction".
	Mode string

	// Size is how many connections to each database it makes at most. Defaults to 4.
	Size int

	// Ready is how many of them it keeps while a database has clients. They take
	// turns, so that from 2 on the next transaction is on another one. Defaults to Size.
	Ready int

	// Users are roles that the server asks for a password, besides the one of the URL, with
	// theirs. Other roles may connect when the URL's can look them up, as a superuser can.
	Users map[string]string
}

// Pooler is a running PgBouncer that belongs to this process, in front of all databases
// of a server. Its methods may be called concurrently.
type Pooler struct {
	at      *pgx.ConnConfig // the server
	dir     string          // of its socket
	port    string          // which names the socket's file
	backend poolerProcess
	stop    func() error
}

// poolerProcess is the part that only some systems have.
type poolerProcess interface {
	exited() <-chan struct{}
	stop() error
	lastLines() string
}

// StartPooler starts a PgBouncer in front of the server of a postgres:// URL, and returns
// when a connection to the URL's database has come through it. It ends with the process,
// as a Server does. On an error nothing is left; without a PgBouncer on this machine it
// matches ErrNoPooler.
func StartPooler(ctx context.Context, server string, opts *PoolerOptions) (*Pooler, error) {
	if opts == nil {
		opts = &PoolerOptions{}
	}
	p, err := startPooler(ctx, server, opts)
	if err != nil {
		return nil, fmt.Errorf("pgtemp: start a PgBouncer: %w", err)
	}
	return p, nil
}

func startPooler(ctx context.Context, server string, opts *PoolerOptions) (*Pooler, error) {
	at, err := pgx.ParseConfig(server)
	if err != nil {
		return nil, err
	}
	bin, err := findPooler()
	if err != nil {
		return nil, err
	}
	p := &Pooler{at: at, port: socketPort}
	if p.backend, p.dir, err = launchPooler(bin, at, opts); err != nil {
		return nil, err
	}
	stop := p.backend.stop
	if hurtByCancels(bin) {
		p.port = frontPort
		front, err := newFront(socketFile(p.dir, frontPort), socketFile(p.dir, socketPort))
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		stop = func() error { return errors.Join(front.close(), p.backend.stop()) }
	}
	p.stop = sync.OnceValue(stop)
	ctx, cancel := context.WithTimeout(ctx, poolerTimeout)
	defer cancel()
	if err := p.await(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// findPooler finds the binary, which Debian has where only root's PATH goes.
func findPooler() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoPooler
}

// frontPort names the socket of a front.
const frontPort = "5433"

func socketFile(dir, port string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// hurtByCancels says whether it is a PgBouncer that needs a front.
func hurtByCancels(bin string) bool {
	out, err := exec.Command(bin, "--version").Output()
	return err == nil && strings.HasPrefix(string(out), "PgBouncer 1.18.")
}

// await waits until a connection comes through.
func (p *Pooler) await(ctx context.Context) error {
	for pause := probeFirst; ; pause = min(pause*5/4, probeMost) {
		conn, err := pgx.Connect(ctx, p.URL(p.at.Database))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)%s", context.Cause(ctx), err, p.backend.lastLines())
		case <-p.backend.exited():
			return err // stop says more
		case <-time.After(pause):
		}
	}
}

// URL is a postgres:// URL of one of the server's databases through the PgBouncer, as the
// role of StartPooler's URL.
func (p *Pooler) URL(database string) string {
	query := url.Values{"host": {p.dir}, "port": {p.port}}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(p.at.User, p.at.Password), Path: "/" + database,
		RawQuery: strings.ReplaceAll(query.Encode(), "+", "%20"), // libpq takes a plus literally
	}
	return u.String()
}

// Cancels says whether requests to cancel a statement get through: they are kept from 1.18.
func (p *Pooler) Cancels() bool { return p.port != frontPort }

// Host is the directory of its socket, which is the host of its URLs.
func (p *Pooler) Host() string { return p.dir }

// Prepares says whether the PgBouncer follows prepared statements, which pgx's default
// exec mode needs in transaction mode: from 1.24 on by default, from 1.21 on when it is
// told to.
func (p *Pooler) Prepares(ctx context.Context) (bool, error) {
	cfg, err := pgx.ParseConfig(p.URL("pgbouncer")) // its console
	if err != nil {
		return false, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, "SHOW CONFIG")
	if err != nil {
		return false, err
	}
	settings, err := pgx.CollectRows(rows, pgx.RowToMap)
	for _, s := range settings {
		if s["key"] == "max_prepared_statements" {
			return s["value"] != "0", err
		}
	}
	return false, err
}

// Stop ends the PgBouncer, its clients' connections with it, and returns nil when no
// process and no directory is left. A second call returns the same result.
func (p *Pooler) Stop() error {
	if err := p.stop(); err != nil {
		return fmt.Errorf("pgtemp: stop the PgBouncer: %w", err)
	}
	return nil
}

// ini leaves PgBouncer's defaults where they matter to a test: no reset of a connection
// between two transactions, and max_prepared_statements.
func (o *PoolerOptions) ini(at *pgx.ConnConfig, socket, users string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	size := o.Size
	if size == 0 {
		size = 4
	}
	ready := o.Ready
	if ready == 0 {
		ready = size
	}
	mode := o.Mode
	if mode == "" {
		mode = "transaction"
	}
	return strings.Join([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d", quote(at.Host), at.Port),
		"[pgbouncer]",
		"unix_socket_dir = " + socket,
		"unix_socket_mode = 0700", // trust is for whoever can open the socket
		"listen_port = " + socketPort,
		"auth_type = trust",
		"auth_file = " + users,
		"auth_user = " + at.User, // looks up whom the file doesn't have
		"admin_users = " + at.User,
		"pool_mode = " + mode,
		"default_pool_size = " + strconv.Itoa(size),
		"min_pool_size = " + strconv.Itoa(ready),
		"max_client_conn = 2000",
		"server_round_robin = 1",
		"server_login_retry = 1",
		"autodb_idle_timeout = 5",                        // tests drop their databases
		"ignore_startup_parameters = extra_float_digits", // lib/pq's
	}, "\n") + "\n"
}

// userList is PgBouncer's auth_file.
func (o *PoolerOptions) userList(at *pgx.ConnConfig) string {
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	list := quote(at.User) + " " + quote(at.Password) + "\n"
	for user, password := range o.Users {
		list += quote(user) + " " + quote(password) + "\n"
	}
	return list
}
