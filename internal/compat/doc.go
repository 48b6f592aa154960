// Package compat runs Gatepost behind what its users have besides pgx: lib/pq and
// sqlc's code for database/sql, PgBouncer in transaction mode, and idemhttp in chi, echo
// and gin. It is a module of its own, so that nobody who imports Gatepost gets their
// versions.
//
//	cd internal/compat && go test ./...
//
// The tests of PgBouncer are skipped where it isn't installed, unless
// GATEPOST_PGBOUNCER=required. They run on Linux.
package compat
