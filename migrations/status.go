package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MigrationStatus says whether one migration is applied to a database.
type MigrationStatus struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"` // the file's; empty of one that only a newer module has
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Status lists all migrations, oldest first: those of this module and, without a name,
// those that a newer one has applied. It only reads: a database that was never migrated
// stays as it is and shows all of them as not applied.
func Status(ctx context.Context, pool *pgxpool.Pool) ([]MigrationStatus, error) {
	applied, err := appliedVersions(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", versionTable, err)
	}
	all := sources()
	for i := range all {
		at, ok := applied[all[i].Version]
		all[i].Applied, all[i].AppliedAt = ok, at
	}
	for _, version := range slices.Sorted(maps.Keys(applied)) {
		if version > Latest() {
			all = append(all, MigrationStatus{Version: version, Applied: true, AppliedAt: applied[version]})
		}
	}
	return all, nil
}

// OtherTool says whether Gatepost's tables are there and were made by another tool, from
// what SQL returns: Status shows no migration as applied then, and Up is ErrOtherTool.
func OtherTool(ctx context.Context, pool *pgxpool.Pool) (bool, error) { return otherTool(ctx, pool) }

// appliedVersions reads goose's table directly, because goose's own status call
// creates the table when it is missing.
func appliedVersions(ctx context.Context, pool *pgxpool.Pool) (map[int64]time.Time, error) {
	var present bool
	err := pool.QueryRow(ctx, `SELECT to_regclass('`+versionTable+`') IS NOT NULL`).Scan(&present)
	if err != nil || !present {
		return nil, err
	}
	rows, err := pool.Query(ctx,
		`SELECT version_id, tstamp::timestamptz FROM `+versionTable+` WHERE is_applied ORDER BY id`)
	if err != nil {
		return nil, err
	}
	applied := map[int64]time.Time{}
	var version int64
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
		applied[version] = at
		return nil
	})
	return applied, err
}

// sources lists the embedded files, oldest first. A file that isn't named
// NUMBER_name.sql can't be embedded by us, so it is a panic.
func sources() []MigrationStatus {
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		panic(err)
	}
	slices.Sort(names)
	all := make([]MigrationStatus, 0, len(names))
	for _, name := range names {
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic(err)
		}
		all = append(all, MigrationStatus{Version: version, Name: name})
	}
	return all
}
