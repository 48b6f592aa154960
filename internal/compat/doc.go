// Package compat runs Gatepost behind what its users have besides pgx: lib/pq and
// sqlc's code for database/sql, and PgBouncer in transaction mode. It is a module of
// its own, so that nobody who imports Gatepost gets lib/pq's version.
//
//	cd internal/compat && go test ./...
//
// The tests of PgBouncer are skipped where it isn't installed, unless
// GATEPOST_PGBOUNCER=required. They run on Linux.
package compat
