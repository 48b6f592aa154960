package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// parseTable reads --table: NAME or SCHEMA.NAME, exactly as they are.
func parseTable(text string) (pgx.Identifier, error) {
	table := pgx.Identifier(strings.Split(text, "."))
	if len(table) == 2 && (strings.HasPrefix(table[0], "pg_") || table[0] == "information_schema" || table[0] == "gatepost") {
		return nil, fmt.Errorf("--table %q is in a schema that isn't for an application's tables", text)
	}
	for _, part := range table {
		if len(table) > 2 || part == "" || len(part) > 63 || !utf8.ValidString(part) || strings.ContainsRune(part, 0) {
			return nil, fmt.Errorf("--table %q can't be used; use NAME or SCHEMA.NAME, each of 1 to 63 bytes", text)
		}
	}
	return table, nil
}

// tableName makes a table's name of a file's: small letters, digits and
// underscores.
func tableName(path string) string {
	base := filepath.Base(path)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '_'
		}
	}, base)
	name = strings.Trim(name, "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "csv_" + name
	}
	return strings.TrimRight(name[:min(len(name), 63)], "_")
}

// chooseTable is the table that was asked for, or else the one that a file with
// this content was imported into before, under whatever name, or else one named
// after the file.
func chooseTable(ctx context.Context, db pgx.Tx, s *source) (pgx.Identifier, error) {
	table := s.opts.table
	if table == nil {
		var schema, name string
		err := db.QueryRow(ctx, `SELECT table_schema, table_name FROM gatepost.imports
			WHERE sha256 = $1 AND key = $2 ORDER BY id DESC LIMIT 1`, s.sum[:], s.opts.key.String()).Scan(&schema, &name)
		if err == nil {
			return pgx.Identifier{schema, name}, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		table = pgx.Identifier{tableName(s.path)}
	}
	if len(table) == 2 {
		return table, nil
	}
	table, err := inCurrentSchema(ctx, db, table[0])
	if err != nil || s.opts.table != nil {
		return table, err
	}
	return besideOtherKeys(ctx, db, table, s.opts.key)
}

func inCurrentSchema(ctx context.Context, db pgx.Tx, name string) (pgx.Identifier, error) {
	var schema *string
	if err := db.QueryRow(ctx, `SELECT current_schema()`).Scan(&schema); err != nil {
		return nil, err
	}
	if schema == nil {
		return nil, errors.New("the role has no schema to create tables in; use --table SCHEMA.NAME")
	}
	return pgx.Identifier{*schema, name}, nil
}

// besideOtherKeys takes another name when the table of that name was made by an
// import with another key: its rows say nothing about this one.
func besideOtherKeys(ctx context.Context, db pgx.Tx, table pgx.Identifier, key keySpec) (pgx.Identifier, error) {
	var other bool
	err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM gatepost.imports
		WHERE table_schema = $1 AND table_name = $2 AND key <> $3)`, table[0], table[1], key.String()).Scan(&other)
	if err == nil && other {
		suffix := "_" + key.kind.String()
		table[1] = strings.ReplaceAll(table[1][:min(len(table[1]), 63-len(suffix))]+suffix, "-", "_")
	}
	return table, err
}

// otherContent says whether a file of the same name was imported into the table
// with other content: by its line, each of its records is a new one.
func otherContent(ctx context.Context, db pgx.Tx, table pgx.Identifier, s *source) (other bool, err error) {
	if s.opts.key.kind != fileLine {
		return false, nil
	}
	err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM gatepost.imports WHERE table_schema = $1 AND table_name = $2
		AND regexp_replace(file, '.*[/\\]', '') = $3)`, table[0], table[1], filepath.Base(s.path)).Scan(&other)
	return other, err
}

// prepareTable creates the table when it is missing, and else checks that it has
// the columns. That the key is unique is checked by CopyOnce. Two that create the
// same table for different files go one after the other.
func prepareTable(ctx context.Context, db pgx.Tx, table pgx.Identifier, s *source) error {
	if _, err := db.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('fileimport ' || $1, 0))`, table.Sanitize()); err != nil {
		return err
	}
	var kind string
	err := db.QueryRow(ctx, `SELECT coalesce((SELECT relkind::text FROM pg_catalog.pg_class WHERE oid = to_regclass($1)), '')`,
		table.Sanitize()).Scan(&kind)
	if err != nil {
		return err
	}
	if kind == "" {
		if _, err := db.Exec(ctx, createTableSQL(table, s)); err != nil {
			return fmt.Errorf("%s: create table %s: %w", s.path, table.Sanitize(), err)
		}
		return nil
	}
	if kind != "r" && kind != "p" {
		return fmt.Errorf("%s is a view, a sequence or the like, not a table; use another --table", table.Sanitize())
	}
	return needColumns(ctx, db, table, s)
}

// needColumns refuses a table that lacks a column of the key or of the file.
func needColumns(ctx context.Context, db pgx.Tx, table pgx.Identifier, s *source) error {
	rows, err := db.Query(ctx, `SELECT attname::text FROM pg_catalog.pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped`, table.Sanitize())
	if err != nil {
		return err
	}
	has, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, c := range s.opts.key.extra() {
		if !slices.Contains(has, c.name) {
			return fmt.Errorf("table %s has no column %s for this --key; use --key natural:COLUMN if it has a unique key of its own, or another --table",
				table.Sanitize(), c.name)
		}
	}
	for _, c := range s.columns {
		if !slices.Contains(has, c) {
			return fmt.Errorf("table %s has no column %q, which %s has; use another --table, or add the column",
				table.Sanitize(), c, s.path)
		}
	}
	return nil
}

func createTableSQL(table pgx.Identifier, s *source) string {
	var parts []string
	for _, c := range s.opts.key.extra() {
		parts = append(parts, pgx.Identifier{c.name}.Sanitize()+" "+c.definition)
	}
	key := s.opts.key.names()
	for _, c := range s.columns {
		definition := pgx.Identifier{c}.Sanitize() + " text"
		if slices.Contains(key, c) {
			definition += " NOT NULL"
		}
		parts = append(parts, definition)
	}
	quoted := make([]string, len(key))
	for i, k := range key {
		quoted[i] = pgx.Identifier{k}.Sanitize()
	}
	parts = append(parts, "UNIQUE ("+strings.Join(quoted, ", ")+")")
	return "CREATE TABLE " + table.Sanitize() + " (\n    " + strings.Join(parts, ",\n    ") + "\n)"
}
