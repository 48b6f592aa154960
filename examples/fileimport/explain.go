package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgconn"
)

// explain makes one line of an error, with what to do about it where that is
// known.
func explain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if errors.Is(err, pglock.ErrNotMigrated) {
		return "the database has no Gatepost schema, or an old one; run: gatepost migrate up"
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return text + remedy(pgErr)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return "no connection to the database: " + text
	}
	return text
}

func remedy(err *pgconn.PgError) string {
	switch err.Code {
	case "42501": // insufficient_privilege
		return "; the role needs CREATE on the target's schema or INSERT and SELECT on the table," +
			" TEMPORARY on the database, and the rights on schema gatepost"
	case "3D000":
		return "; create the database, or correct the database URL"
	case "28P01", "28000":
		return "; correct the role or the password in the database URL"
	case "25006":
		return "; this server is read-only: connect to the primary"
	}
	if err.Where != "" {
		return fmt.Sprintf(" (%s)", strings.Join(strings.Fields(err.Where), " "))
	}
	return ""
}
