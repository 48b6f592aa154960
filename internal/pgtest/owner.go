package pgtest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"testing"

	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// envRole, when it is set, makes tests connect as an application's role.
const envRole = "GATEPOST_TEST_ROLE"

// AsRole says whether the URLs that tests get are those of an application's role.
func AsRole() bool { return os.Getenv(envRole) != "" }

// NotAsRole skips a test whose claim is not one of an application's role, and says why.
func NotAsRole(tb testing.TB, why string) {
	tb.Helper()
	if AsRole() {
		tb.Skip("as an application's role: " + why)
	}
}

// Owner is url, one that a test got and perhaps added to, as the owner of Gatepost's
// schema, past a pooler: for what the test itself does to the schema.
func Owner(tb testing.TB, url string) string {
	tb.Helper()
	s := server(tb)
	if !s.through(url) && !s.isRoles(url) {
		return url // it may be of another server
	}
	return s.instead(url, s.url(""))
}

// Creator is url, whose role may then also make schemas in its database, as a program needs
// that measures or shows something.
func Creator(tb testing.TB, url string) string {
	tb.Helper()
	s := server(tb)
	if !s.isRoles(url) {
		return url
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	s.granting.Lock() // at once, two on one database are an error
	defer s.granting.Unlock()
	if _, err := s.admin.Exec(tb.Context(), "GRANT CREATE ON DATABASE "+ident(cfg.Database)+" TO "+ident(s.role.name)); err != nil {
		tb.Fatal(err)
	}
	return url
}

// OwnerPool is Pool as the owner of Gatepost's schema.
func OwnerPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return Connect(tb, Owner(tb, URL(tb)))
}

// login is a role that tests connect as.
type login struct{ name, password string }

// makeRole makes the role of envRole, which has nothing yet.
func (s *instance) makeRole(ctx context.Context) error {
	if !AsRole() {
		return nil
	}
	role := &login{name: "gatepost_test_" + random(), password: random()}
	if _, err := s.admin.Exec(ctx, "CREATE ROLE "+ident(role.name)+" LOGIN PASSWORD '"+role.password+"'"); err != nil {
		return err
	}
	s.role = role
	return nil
}

// dropRole drops it when it owns nothing any more.
func (s *instance) dropRole(ctx context.Context) error {
	if s.role == nil {
		return nil
	}
	_, err := s.admin.Exec(ctx, "DROP ROLE "+ident(s.role.name))
	return err
}

// equip gives the role what it has in a migrated database. The schema public is its own,
// where tests make their tables, and nobody else's.
func (s *instance) equip(ctx context.Context, database string) error {
	if s.role == nil {
		return nil
	}
	pool, err := pgxpool.New(ctx, s.url(database))
	if err != nil {
		return err
	}
	defer pool.Close()
	statements, err := equipment(s.role.name, database, "public", migrations.Grants)
	if err != nil {
		return err
	}
	for _, sql := range append(statements, "GRANT CONNECT ON DATABASE "+ident(database)+" TO "+ident(s.role.name)) {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return errors.Join(errors.New(sql), err)
		}
	}
	return nil
}

// isRoles says whether a URL is of the role of envRole.
func (s *instance) isRoles(of string) bool {
	u, err := url.Parse(of)
	if err != nil {
		panic(err) // it is one of ours
	}
	return s.role != nil && u.User.Username() == s.role.name
}

// asRole is a URL as the role of envRole, if there is one.
func (s *instance) asRole(of string) string {
	if s.role == nil {
		return of
	}
	u, err := url.Parse(of)
	if err != nil {
		panic(err) // it is one of ours
	}
	u.User = url.UserPassword(s.role.name, s.role.password)
	return u.String()
}
