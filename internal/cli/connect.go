package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connectTimeout bounds one attempt where neither connect_timeout nor PGCONNECT_TIMEOUT
// does: people wait for the answer.
const connectTimeout = 10 * time.Second

// Source is where a database was named.
type Source struct {
	// Name is what people know it by, as --database-url; empty when it is the PG* variables.
	Name string
	// URL is the text that was found there.
	URL string
	// Unprepared leaves no prepared statements on the server, which poolers in transaction
	// mode before PgBouncer 1.21 know nothing of, unless the URL says how to execute.
	Unprepared bool
}

// SourceOf is the value of a program's --database-url, else DATABASE_URL, else the PG*
// variables.
func SourceOf(flag string) Source {
	if flag != "" {
		return Source{Name: "--database-url", URL: flag}
	}
	if value := os.Getenv("DATABASE_URL"); value != "" {
		return Source{Name: "DATABASE_URL", URL: value}
	}
	return Source{}
}

// Connect opens a pool and fails now if it can't, and not in the middle of the
// work. An empty url leaves it to the PG* variables. The caller closes the pool.
// An error is a UsageError, of a url that can't be read, or a *ConnectionError.
func Connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	s := Source{URL: url}
	if url != "" {
		s.Name = "the URL"
	}
	return s.Connect(ctx)
}

// Connect opens a pool as the function does, with errors that say what to correct where.
func (s Source) Connect(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return nil, UsageError{s.unreadable(err)}
	}
	// What Go sends is UTF-8, whatever the database or the role defaults to.
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if s.Unprepared && cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // pgx's own choice
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, &ConnectionError{Source: s, Config: &cfg.ConnConfig.Config, Err: err}
	}
	return pool, nil
}

// unreadable never shows the text: what can't be parsed can't be rid of its password for
// sure.
func (s Source) unreadable(err error) error {
	_, reason, found := strings.Cut(err.Error(), "`: ")
	for rest := reason; found; { // the text may hold anything
		if _, rest, found = strings.Cut(rest, "`: "); found {
			reason = rest
		}
	}
	if s.Name == "" {
		return fmt.Errorf("the PG* variables can't be used: %s", reason)
	}
	return fmt.Errorf("%s can't be read: %s; it has the form postgres://ROLE@HOST:5432/DATABASE, or host=HOST dbname=DATABASE", s.Name, reason)
}

// variables are those that say what a URL leaves out.
var variables = map[string]string{"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}

// words name the parts of a URL for people.
var words = map[string]string{"host": "host", "port": "port", "user": "role", "password": "password", "dbname": "database"}

// place says where parts are to be corrected: "host and port in DATABASE_URL", "PGHOST".
func (s Source) place(parts ...string) string {
	var there, elsewhere []string
	for _, part := range parts {
		if mentions(s.URL, part) {
			there = append(there, words[part])
		} else {
			elsewhere = append(elsewhere, variables[part])
		}
	}
	if len(there) > 0 {
		there = []string{"the " + strings.Join(there, " and the ") + " in " + s.Name}
	}
	return strings.Join(append(there, elsewhere...), ", and ")
}

// mentions says whether a database URL, or a text of keywords, has a part.
func mentions(text, part string) bool {
	u, err := url.Parse(text)
	switch {
	case !strings.Contains(text, "://"):
		return regexp.MustCompile(`(^|\s)` + part + `\s*=`).MatchString(text)
	case err != nil: // of several hosts
		return true
	}
	_, password := u.User.Password()
	return u.Query().Has(part) || map[string]bool{
		"host": u.Hostname() != "", "port": u.Port() != "", "user": u.User.Username() != "",
		"password": password, "dbname": strings.Trim(u.Path, "/") != "",
	}[part]
}

// ConnectionError says in one line why there is no connection, and what to correct where.
// It never shows a password.
type ConnectionError struct {
	Source Source
	Config *pgconn.Config
	Err    error
}

func (e *ConnectionError) Error() string {
	c := e.cause()
	text := "no connection to the database: " + c.what
	if c.remedy != "" {
		text += "; " + c.remedy
	}
	return text
}

// Unwrap returns what pgx said.
func (e *ConnectionError) Unwrap() error { return e.Err }

// addresses are where it was tried.
func (e *ConnectionError) addresses() string {
	var all []string
	seen := map[string]bool{}
	add := func(host string, port uint16) {
		_, address := pgconn.NetworkAddress(host, port)
		if host != "" && !seen[address] {
			seen[address] = true
			all = append(all, address)
		}
	}
	add(e.Config.Host, e.Config.Port)
	for _, f := range e.Config.Fallbacks {
		add(f.Host, f.Port)
	}
	return strings.Join(all, " and ")
}

// asConnectionError makes one of an error of pgx's that says so.
func asConnectionError(err error) (*ConnectionError, bool) {
	if known, ok := errors.AsType[*ConnectionError](err); ok {
		return known, true
	}
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return &ConnectionError{Source: Source{Name: "the URL"}, Config: failed.Config, Err: err}, true
	}
	return nil, false
}
