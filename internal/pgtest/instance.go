package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// envURL points the tests at a server that already runs.
const envURL = "GATEPOST_TEST_DATABASE_URL"

// envSettings are settings of the server that is started: name=value, separated by
// semicolons: default_transaction_isolation=serializable, and whatever else a database's
// owner may have set. Tests that need a setting say so: see ReadCommitted and Repeat.
const envSettings = "GATEPOST_TEST_SETTINGS"

// envParams are added to the URLs that tests get, as name=value&name=value. Such as
// default_query_exec_mode=exec, for another of pgx's modes.
const envParams = "GATEPOST_TEST_PARAMS"

// instance is the server of this test binary.
type instance struct {
	temp     *pgtemp.Server // nil: the server of envURL
	admin    *pgxpool.Pool  // makes and drops databases
	base     string         // the URL that url varies
	template string         // migrated, and nobody connects to it
	shared   string         // migrated, for all tests
	params   string         // of envParams
	role     *login         // whom tests connect as; nil: whoever base says
	pooler   *pgtemp.Pooler // what tests connect through; nil: nothing

	granting sync.Mutex // held for a GRANT on a database
}

// shared is this binary's server. One a process is the point: a start takes a second.
var shared struct {
	mu       sync.Mutex
	instance *instance
	err      error
	told     bool // whether a test has shown err
}

// server is the started instance. When it can't start, the first test says why and the
// others say that they had none.
func server(tb testing.TB) *instance {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.instance == nil && shared.err == nil {
		// Not the test's context: the server outlives the test.
		shared.instance, shared.err = open(context.Background())
	}
	if shared.err == nil {
		return shared.instance
	}
	if shared.told {
		tb.Fatal("no PostgreSQL; the first test that failed says why")
	}
	shared.told = true
	tb.Fatal(shared.err)
	return nil
}

// stop closes the instance, if there is one.
func stop() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.instance == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	return shared.instance.close(ctx)
}

// open starts or finds the server and makes the template and the shared database.
func open(ctx context.Context) (*instance, error) {
	s := &instance{base: os.Getenv(envURL), params: os.Getenv(envParams)}
	if s.base == "" {
		set, err := settings(os.Getenv(envSettings))
		if err != nil {
			return nil, err
		}
		if Pooled() && set["max_connections"] == "" {
			set["max_connections"] = "600" // a pooler keeps them for a while
		}
		temp, err := pgtemp.Start(ctx, &pgtemp.Options{Settings: set})
		if err != nil {
			return nil, err
		}
		s.temp, s.base = temp, temp.URL("")
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// settings reads envSettings.
func settings(text string) (map[string]string, error) {
	set := map[string]string{}
	for field := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' }) {
		name, value, ok := strings.Cut(field, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not name=value", envSettings, field)
		}
		set[name] = value
	}
	return set, nil
}

func (s *instance) prepare(ctx context.Context) (err error) {
	if u, err := url.Parse(s.base); err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return fmt.Errorf("%s is not a postgres:// URL", envURL) // without it: it may hold a password
	}
	if s.admin, err = pgxpool.New(ctx, s.base); err != nil {
		return err
	}
	if err := s.makeRole(ctx); err != nil {
		return err
	}
	template := databaseName()
	if err := s.create(ctx, template, "template0"); err != nil {
		return err
	}
	s.template = template
	if err := s.migrate(ctx, template); err != nil {
		return err
	}
	name := databaseName()
	if err := s.create(ctx, name, template); err != nil {
		return err
	}
	s.shared = name
	if err := s.equip(ctx, name); err != nil {
		return err
	}
	return s.startPooler(ctx)
}

// migrate leaves no connection behind: a template must have none.
func (s *instance) migrate(ctx context.Context, database string) error {
	pool, err := pgxpool.New(ctx, s.url(database))
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool)
}

// close drops what open made and stops what it started.
func (s *instance) close(ctx context.Context) error {
	var errs []error
	if s.pooler != nil {
		errs = append(errs, s.pooler.Stop())
	}
	if s.temp == nil {
		for _, name := range []string{s.shared, s.template} {
			if name != "" {
				errs = append(errs, s.drop(ctx, name))
			}
		}
		errs = append(errs, s.dropRole(ctx))
	}
	if s.admin != nil {
		s.admin.Close()
	}
	if s.temp != nil {
		errs = append(errs, s.temp.Stop())
	}
	return errors.Join(errs...)
}

// url is base with another database.
func (s *instance) url(database string) string {
	u, err := url.Parse(s.base)
	if err != nil {
		panic(err) // prepare has parsed it
	}
	u.Path = "/" + database
	return u.String()
}

// testURL is url through the pooler, as the role, and with the parameters of envParams.
func (s *instance) testURL(database string) string {
	through := s.url(database)
	if s.pooler != nil {
		through = s.pooler.URL(database)
	}
	return s.withParams(s.asRole(through))
}

func (s *instance) withParams(of string) string {
	u, err := url.Parse(of)
	if err != nil {
		panic(err) // it comes from one
	}
	if u.RawQuery != "" && s.params != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += s.params
	return u.String()
}

func (s *instance) create(ctx context.Context, name, template string) error {
	_, err := s.admin.Exec(ctx, "CREATE DATABASE "+ident(name)+" TEMPLATE "+ident(template))
	return err
}

func (s *instance) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+ident(name)+" WITH (FORCE)")
	return err
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }
