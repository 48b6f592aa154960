package idem

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// staging is the temporary table of one call of CopyOnce, for what doesn't go straight.
type staging struct {
	*loading
	straight *straight
	ordinal  string // its column with the place in the input
	rising   bool   // the input's keys are known to rise from row to row
}

// stagingTable is reached through pg_temp, so no table of the application's can
// be meant instead.
var stagingTable = pgx.Identifier{"pg_temp", "gatepost_copy"}

func (s *staging) load(ctx context.Context) (counts Counts, err error) {
	if err := s.create(ctx); err != nil {
		return Counts{}, err
	}
	rows, err := s.copyRows(ctx)
	if err != nil {
		return Counts{}, err
	}
	counts.Rows = s.straight.rows + rows
	distinct, own := rows, int64(0)
	if !s.rising {
		if distinct, err = s.distinct(ctx); err == nil {
			own, err = s.own(ctx)
		}
		if err != nil {
			return Counts{}, err
		}
	}
	counts.Duplicate = rows - distinct + own
	if err := s.move(ctx, distinct, &counts); err != nil {
		return Counts{}, err
	}
	counts.Existed = counts.Rows - counts.Inserted - counts.Duplicate - counts.Changed
	// Dropped now, so that CopyOnce can be called again in this transaction.
	_, err = s.tx.Exec(ctx, "DROP TABLE "+stagingTable.Sanitize())
	return counts, err
}

// move inserts the new rows, and counts them and those that are there with other content.
func (s *staging) move(ctx context.Context, distinct int64, counts *Counts) (err error) {
	// After the INSERT it also sees what a concurrent loader put there; but a
	// trigger's own changes must not count, so then before.
	if s.hooked {
		err = s.compare(ctx, counts)
	}
	var inserted int64
	if err == nil {
		inserted, err = s.insert(ctx)
	}
	counts.Inserted = s.straight.inserted + inserted
	switch {
	case err != nil:
		return err
	case s.hooked:
		return s.verify(ctx, distinct)
	default:
		return s.compare(ctx, counts)
	}
}

// create makes the table with the target's column types and none of its
// constraints.
func (s *staging) create(ctx context.Context) error {
	s.ordinal = "gatepost_ordinal"
	for slices.Contains(s.Columns, s.ordinal) {
		s.ordinal += "_"
	}
	_, err := s.tx.Exec(ctx, "CREATE TEMPORARY TABLE "+stagingTable.Sanitize()+" ON COMMIT DROP AS"+
		" SELECT NULL::bigint AS "+quote(s.ordinal)+", "+columnList("", s.Columns)+
		" FROM "+s.Table.Sanitize()+" WITH NO DATA")
	return err
}

// copyRows streams the rows as text: so the server reads the values with its types' own
// input functions, and names the row and the column of one that it refuses.
func (s *staging) copyRows(ctx context.Context) (int64, error) {
	text := &numberedText{copyText: s.text, lines: s.straight.left, n: s.straight.rows}
	tag, err := s.copyFrom(ctx, text, copySQL(stagingTable, append([]string{s.ordinal}, s.Columns...)))
	if s.text.err != nil { // the source's own, which COPY only passes on
		err = s.text.err
	}
	s.rising = !s.text.keys.broken
	return tag.RowsAffected(), placed(err, stagingTable, s.Table, s.straight.rows)
}

// distinct counts the keys of the input. A NULL in one is refused: a unique
// index lets any number of them in.
func (s *staging) distinct(ctx context.Context) (n int64, err error) {
	nulls := make([]string, len(s.Key))
	for i, k := range s.Key {
		nulls[i] = quote(k) + " IS NULL"
	}
	var first *int64
	err = s.tx.QueryRow(ctx, "SELECT count(*), min(first) FROM (SELECT min("+quote(s.ordinal)+")"+
		" FILTER (WHERE "+strings.Join(nulls, " OR ")+") AS first FROM "+stagingTable.Sanitize()+
		" GROUP BY "+s.keyList("")+") AS keys").Scan(&n, &first)
	if err == nil && first != nil {
		err = fmt.Errorf("%w: row %d has a NULL in %s", ErrInvalidKey, *first, columnList("", s.Key))
	}
	return n, err
}

// insert moves the new rows: fast first, and on a unique violation again in the
// way that can't meet one. In a savepoint the violation costs only the INSERT.
func (s *staging) insert(ctx context.Context) (int64, error) {
	own, err := newSavepoint(ctx, s.tx, savepointPart)
	if err != nil {
		return 0, err
	}
	tag, err := s.tx.Exec(ctx, s.insertSQL()+" ORDER BY "+s.keyList("s"))
	if err == nil {
		return tag.RowsAffected(), own.Commit(ctx)
	}
	if rollback := own.Rollback(ctx); rollback != nil || sqlState(err) != stateUniqueViolation {
		return 0, err
	}
	tag, err = s.tx.Exec(ctx, s.insertSQL()+" ORDER BY "+s.keyList("s")+
		" ON CONFLICT ("+columnList("", s.Key)+") DO NOTHING")
	return tag.RowsAffected(), err
}

func (s *staging) insertSQL() string {
	return "INSERT INTO " + s.Table.Sanitize() + " (" + columnList("", s.Columns) + ")" +
		" SELECT " + columnList("s", s.Columns) + " FROM (" + s.firstSQL() + ") AS s" +
		" WHERE NOT EXISTS (SELECT FROM " + s.Table.Sanitize() + " AS t WHERE " + s.sameKey() + ")"
}

// firstSQL is the first row of each key.
func (s *staging) firstSQL() string {
	if s.rising {
		return "SELECT * FROM " + stagingTable.Sanitize()
	}
	return "SELECT DISTINCT ON (" + s.keyList("") + ") " + quote(s.ordinal) + ", " + columnList("", s.Columns) +
		" FROM " + stagingTable.Sanitize() + " ORDER BY " + s.keyList("") + ", " + quote(s.ordinal)
}

// foundSQL is the first row of each key beside the row that the table has.
func (s *staging) foundSQL() string {
	return " FROM (" + s.firstSQL() + ") AS s JOIN " + s.Table.Sanitize() + " AS t ON " + s.sameKey()
}

func (s *staging) sameKey() string {
	equal := make([]string, len(s.Key))
	for i := range s.Key {
		equal[i] = s.keyColumn("t", i) + " = " + s.keyColumn("s", i)
	}
	return strings.Join(equal, " AND ")
}

// keyList is the key as the index compares it.
func (s *staging) keyList(alias string) string {
	columns := make([]string, len(s.Key))
	for i := range s.Key {
		columns[i] = s.keyColumn(alias, i)
	}
	return strings.Join(columns, ", ")
}

func (s *staging) keyColumn(alias string, i int) string {
	if s.collations[i] == "" {
		return qualified(alias, s.Key[i])
	}
	return qualified(alias, s.Key[i]) + " COLLATE " + s.collations[i]
}

// own counts the keys that came in a chunk earlier in this call.
func (s *staging) own(ctx context.Context) (n int64, err error) {
	if len(s.straight.spans) == 0 {
		return 0, nil
	}
	err = s.tx.QueryRow(ctx, "SELECT count(*)"+s.foundSQL()+" WHERE "+s.straight.ownSQL(), s.straight.ownArgs()...).Scan(&n)
	return n, err
}

// compare counts rows that are there with other content, and not from this call: as text,
// because not each type can be compared.
func (s *staging) compare(ctx context.Context, counts *Counts) error {
	if len(s.Compare) == 0 {
		return nil
	}
	differs := make([]string, len(s.Compare))
	for i, c := range s.Compare {
		differs[i] = qualified("t", c) + "::text IS DISTINCT FROM " + qualified("s", c) + "::text"
	}
	where, args := strings.Join(differs, " OR "), []any(nil)
	if !s.rising && len(s.straight.spans) > 0 {
		where, args = "("+where+") AND NOT "+s.straight.ownSQL(), s.straight.ownArgs()
	}
	return s.tx.QueryRow(ctx, "SELECT count(*), coalesce(min("+qualified("s", s.ordinal)+"), 0)"+s.foundSQL()+
		" WHERE "+where, args...).Scan(&counts.Changed, &counts.FirstChanged)
}

// verify holds a table whose triggers, rules or policies have a say against the
// promise: each key is there afterwards. A count can't tell.
func (s *staging) verify(ctx context.Context, distinct int64) error {
	var found int64
	err := s.tx.QueryRow(ctx, "SELECT count(*)"+s.foundSQL()).Scan(&found)
	if err == nil && found < distinct {
		err = fmt.Errorf("%w: %d of %d keys; a trigger, a rule or a row-level policy of the table left them out",
			ErrNotStored, distinct-found, distinct)
	}
	return err
}
