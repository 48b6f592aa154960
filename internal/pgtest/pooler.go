package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// envPooler is what stands between the tests and the server: nothing, or pgbouncer.
const envPooler = "GATEPOST_TEST_POOLER"

// execMode is pgx's parameter for how it sends statements.
const execMode = "default_query_exec_mode"

// Pooled says whether the URLs that tests get lead through PgBouncer in transaction mode.
func Pooled() bool { return os.Getenv(envPooler) != "" }

// NotPooled skips a test whose claim is not one behind a pooler, and says why.
func NotPooled(tb testing.TB, why string) {
	tb.Helper()
	if Pooled() {
		tb.Skip("behind PgBouncer: " + why)
	}
}

// NotPooledIn skips a test in a mode in which pgx doesn't work behind a pooler, whoever uses
// it: what was prepared in one transaction, or described in one round trip, isn't there in
// the next.
func NotPooledIn(tb testing.TB, mode pgx.QueryExecMode) {
	tb.Helper()
	if mode == pgx.QueryExecModeDescribeExec || mode == pgx.QueryExecModeCacheStatement {
		NotPooled(tb, "pgx's mode "+mode.String()+" needs a session")
	}
}

// NotUncancelled skips a test whose claim is that a statement is cancelled, behind a
// PgBouncer that can't bear it.
func NotUncancelled(tb testing.TB) {
	tb.Helper()
	if Pooled() && !server(tb).pooler.Cancels() {
		NotPooled(tb, "requests to cancel are kept from PgBouncer 1.18, which may end itself over them")
	}
}

// Backend is the process that serves a transaction. Behind a pooler that is another one than
// its connection was told of.
func Backend(tb testing.TB, tx pgx.Tx) uint32 {
	tb.Helper()
	var pid int32
	if err := tx.QueryRow(tb.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		tb.Fatal(err)
	}
	return uint32(pid)
}

// Plain is url without what only pgx knows, for psql and its like.
func Plain(tb testing.TB, of string) string {
	tb.Helper()
	u, err := url.Parse(of)
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	query.Del(execMode)
	u.RawQuery = encode(query)
	return u.String()
}

// encode leaves no plus in it, which libpq takes literally.
func encode(query url.Values) string { return strings.ReplaceAll(query.Encode(), "+", "%20") }

// Direct is url, one that a test got and perhaps added to, past the pooler: for a
// connection of the test's own that needs a session. What is tested stays behind it.
func Direct(tb testing.TB, url string) string {
	tb.Helper()
	return server(tb).direct(url)
}

// direct is Direct, as the same role. A URL that isn't through the pooler stays as it is:
// it may be of another server.
func (s *instance) direct(of string) string {
	if !s.through(of) {
		return of
	}
	from, err := url.Parse(of)
	if err != nil {
		panic(err) // it is one of ours
	}
	u, err := url.Parse(s.instead(of, s.url("")))
	if err != nil {
		panic(err)
	}
	u.User = from.User
	return u.String()
}

// through says whether a URL leads through the pooler.
func (s *instance) through(of string) bool {
	if s.pooler == nil {
		return false
	}
	cfg, err := pgx.ParseConfig(of)
	if err != nil {
		panic(err) // it is one of ours
	}
	return cfg.Host == s.pooler.Host()
}

// taken are the parameters of a session that PgBouncer takes.
var taken = []string{"application_name", "client_encoding", "datestyle", "timezone", "standard_conforming_strings", "extra_float_digits"}

// config is the configuration of Connect.
func config(tb testing.TB, url string, change []func(*pgxpool.Config)) *pgxpool.Config {
	tb.Helper()
	cfg := parse(tb, url, change)
	if Pooled() && cfg.ConnConfig.Host == server(tb).pooler.Host() && refused(cfg.ConnConfig) {
		return parse(tb, Direct(tb, url), change)
	}
	return cfg
}

func parse(tb testing.TB, url string, change []func(*pgxpool.Config)) *pgxpool.Config {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	for _, change := range change {
		change(cfg)
	}
	return cfg
}

// refused says whether PgBouncer would refuse such a connection.
func refused(cfg *pgx.ConnConfig) bool {
	for name := range cfg.RuntimeParams {
		if !slices.Contains(taken, strings.ToLower(name)) {
			return true
		}
	}
	return false
}

// startPooler starts what envPooler says, if anything. In pgx's default mode statements
// are prepared, which not every PgBouncer can follow; then another mode is the default.
func (s *instance) startPooler(ctx context.Context) error {
	switch name := os.Getenv(envPooler); name {
	case "":
		return nil
	case "pgbouncer":
	default:
		return fmt.Errorf("%s is %q, want pgbouncer or nothing", envPooler, name)
	}
	opts := &pgtemp.PoolerOptions{Size: 60, Ready: 2}
	if s.role != nil {
		opts.Users = map[string]string{s.role.name: s.role.password}
	}
	pooler, err := pgtemp.StartPooler(ctx, s.url(s.shared), opts)
	if err != nil {
		return err
	}
	s.pooler = pooler
	prepares, err := pooler.Prepares(ctx)
	if err == nil && !prepares && !strings.Contains(s.params, execMode) {
		s.params = strings.TrimPrefix(s.params+"&"+execMode+"=cache_describe", "&")
	}
	return err
}

// instead is the database and the further parameters of one URL with the server, the
// role and the parameters of another.
func (s *instance) instead(of, to string) string {
	from, err := url.Parse(of)
	if err != nil {
		panic(err) // it is one of ours
	}
	u, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	query := from.Query()
	for _, name := range []string{"host", "port"} { // of a pooler's socket
		query.Del(name)
	}
	for name, values := range u.Query() {
		query[name] = values
	}
	u.Path, u.RawQuery = from.Path, encode(query)
	return u.String()
}
