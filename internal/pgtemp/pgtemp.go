// Package pgtemp starts a temporary PostgreSQL for examples, the demo, the command
// line and tests, and leaves nothing behind: no process, no directory, no container.
//
// It is not for keeping data: unless Options.Durable is set the server runs with
// fsync off, in memory where it can, and Stop shuts it down the hard way. It is not
// a way to reach a server that already runs; pass a URL for that.
//
// The server comes from the first of
//
//   - Options.BinDir, else the environment variable GATEPOST_PG_BIN: a directory
//     with initdb and postgres. A wrong one is an error, never a fallback;
//   - Options.Image: that image, by Docker;
//   - `pg_config --bindir`, PATH, and the usual folders of Debian, RPM, Homebrew and
//     Postgres.app, the newest version first;
//   - Docker through its command line, when an engine answers: the image in
//     GATEPOST_PG_IMAGE, or DefaultImage.
//
// PostgreSQL refuses to run as root: there it runs as the user postgres, else nobody.
package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// DefaultImage is the image that Docker runs when nothing else is asked for.
const DefaultImage = "postgres:17-alpine"

// superuser is the role of every URL; it exists in each server that Start makes.
const superuser = "postgres"

// ErrNoServer says that this machine has neither the server's binaries nor a Docker
// engine. The error that wraps it names the remedies in one line.
var ErrNoServer = errors.New("no PostgreSQL server found")

// Options say which server and how. The zero value, and nil, are good for tests.
type Options struct {
	// BinDir is the directory of initdb and postgres. Defaults to GATEPOST_PG_BIN,
	// else to what Start finds.
	BinDir string

	// Image is run by Docker in place of local binaries; it must behave like the
	// official postgres image. Defaults to none.
	Image string

	// Settings are lines of postgresql.conf, over those that Start chooses.
	Settings map[string]string

	// Durable keeps fsync and its kin on and the data on a disk: for measurements
	// and for tests of crashes.
	Durable bool

	// Env is added to the environment of local binaries, KEY=VALUE each, such as
	// LD_PRELOAD. Defaults to none.
	Env []string

	// Logs receives what the server prints, as it prints it. Defaults to nowhere.
	Logs io.Writer
}

// Server is a running PostgreSQL that belongs to this process. Its methods may be
// called concurrently.
type Server struct {
	backend backend
	version string
	turn    sync.Mutex // of a Restart or of the Stop
	stop    func() error
}

// backend is the part that differs between local binaries and a container.
type backend interface {
	url(database string) string
	source() string // for people: where the server comes from
	pid() int
	exited() <-chan struct{} // closed when the server is gone
	probe(ctx context.Context) error
	restart(how Shutdown) error                   // not ready yet
	standby(ctx context.Context) (backend, error) // not ready yet
	stop() error
	lastLines() string
}

// Start returns a server that accepts connections, in about a second when the binaries
// are local. Each call makes a server of its own; calls in one process and in many may
// run at once. It also removes what a killed process left behind.
//
// On an error, the end of ctx included, nothing is left running and nothing on the disk.
// The error matches ErrNoServer when there is no server to start; one of initdb or
// postgres carries the last lines they printed.
//
// The server ends with the process, even when that is killed: at once on Linux and in a
// container, at the next Start elsewhere.
func Start(ctx context.Context, opts *Options) (*Server, error) {
	if opts == nil {
		opts = &Options{}
	}
	s, err := start(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("pgtemp: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, opts *Options) (*Server, error) {
	from, err := find(ctx, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, from.patience())
	defer cancel()
	b, err := launch(ctx, from, opts)
	if err != nil {
		return nil, err
	}
	version, err := awaitReady(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", b.source(), errors.Join(err, b.stop()))
	}
	return &Server{backend: b, version: version, stop: sync.OnceValue(b.stop)}, nil
}

// launch starts a server, not yet ready. On an error nothing is left.
func launch(ctx context.Context, from location, opts *Options) (backend, error) {
	if from.image != "" {
		return startContainer(from.image, opts)
	}
	return startLocal(ctx, from.binDir, opts)
}

// URL is a postgres:// URL of database, "" for the database postgres, as a superuser.
// It works in pgx, in libpq's programs, and in another process of the same user. The
// database need not exist yet.
func (s *Server) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	return s.backend.url(database)
}

// Version is the server's version, such as "15.18".
func (s *Server) Version() string { return s.version }

// Describe is one line for people: "PostgreSQL 15.18 from /usr/lib/postgresql/15/bin".
func (s *Server) Describe() string {
	return fmt.Sprintf("PostgreSQL %s from %s", s.version, s.backend.source())
}

// Pid is the process id of the postmaster, or 0 when it runs in a container.
func (s *Server) Pid() int { return s.backend.pid() }

// Stop shuts the server down at once, connections and all, and removes its data. It
// returns nil when no process and no directory is left. A second call, and one beside
// it, returns the same result.
func (s *Server) Stop() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.stop(); err != nil {
		return fmt.Errorf("pgtemp: stop %s: %w", s.backend.source(), err)
	}
	return nil
}

// A probe comes soon at first, since a local server needs about 100 ms, and rarely in
// the end, since Docker may pull an image for minutes.
const (
	probeFirst = 5 * time.Millisecond
	probeMost  = 250 * time.Millisecond
)

// awaitReady waits until the server takes a connection, and returns its version.
func awaitReady(ctx context.Context, b backend) (string, error) {
	for pause := probeFirst; ; pause = min(pause*5/4, probeMost) {
		version, err := connect(ctx, b)
		if err == nil {
			return version, nil
		}
		if isRefusal(err) {
			return "", fmt.Errorf("%w%s", err, b.lastLines())
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w (%w)%s", context.Cause(ctx), err, b.lastLines())
		case <-b.exited():
			return "", fmt.Errorf("it ended before it was ready:%s", b.lastLines())
		case <-time.After(pause):
		}
	}
}

// isRefusal says whether a server that is up refused, so that waiting can't help. Class
// 57 is a server that starts or stops.
func isRefusal(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && !strings.HasPrefix(refused.Code, "57")
}

// connect makes one connection, as the only proof that a server is there.
func connect(ctx context.Context, b backend) (string, error) {
	if err := b.probe(ctx); err != nil {
		return "", err
	}
	conn, err := pgconn.Connect(ctx, b.url("postgres"))
	if err != nil {
		return "", err
	}
	version, _, _ := strings.Cut(conn.ParameterStatus("server_version"), " ")
	return version, conn.Close(ctx)
}
