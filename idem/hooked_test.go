package idem_test

import (
	"fmt"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// trigger makes a row trigger on the table, of which some are cloned to its partitions.
func trigger(t *testing.T, pool *pgxpool.Pool, on pgx.Identifier, when, body string) {
	t.Helper()
	fn := pgx.Identifier{"public", "fn_" + on[1][len(on[1])-10:]}.Sanitize()
	exec(t, pool, "CREATE FUNCTION "+fn+"() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "+body+" END$$;"+
		" CREATE TRIGGER fn "+when+" INSERT ON "+on.Sanitize()+" FOR EACH ROW EXECUTE FUNCTION "+fn+"()")
}

// partitioned is a table of ids and bodies with one partition, which comes with it.
func partitioned(t *testing.T, pool *pgxpool.Pool) (target idem.Target, part pgx.Identifier) {
	t.Helper()
	target = idem.Target{
		Table:   table(t, pool, "id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id"),
		Columns: []string{"id", "body"}, Key: []string{"id"},
	}
	part = table(t, pool, "id int")
	exec(t, pool, fmt.Sprintf("DROP TABLE %[1]s; CREATE TABLE %[1]s PARTITION OF %[2]s FOR VALUES FROM (0) TO (1000)",
		part.Sanitize(), target.Table.Sanitize()))
	return target, part
}

// A trigger may be a partition's own, or, where a partition is loaded, that of its parent.
func TestCopyOnce_NeverSaysThereOfWhatAPartitionsTriggerLeftOut(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, load1 := range map[string]func(target idem.Target, part pgx.Identifier) (on pgx.Identifier, into idem.Target){
		"a partition's, through its parent": func(target idem.Target, part pgx.Identifier) (pgx.Identifier, idem.Target) {
			return part, target
		},
		"the parent's, into a partition": func(target idem.Target, part pgx.Identifier) (pgx.Identifier, idem.Target) {
			on := target.Table
			target.Table = part
			return on, target
		},
	} {
		on, target := load1(partitioned(t, pool))
		trigger(t, pool, on, "BEFORE", "IF NEW.id = 2 THEN NEW.id = 3; END IF; RETURN NEW;")
		got, err := load(t.Context(), pool, target, lines(1, 2, "body"))
		if err == nil {
			t.Errorf("%s: counts = %+v of a key that is not there", what, got)
			continue
		}
		wantErr(t, err, idem.ErrNotStored)
		wantRows(t, pool, target, 0)
	}
}

func TestCopyOnce_NeverSaysInsertedOfWhatATriggerTookOut(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	trigger(t, pool, target.Table, "AFTER", "DELETE FROM "+target.Table.Sanitize()+" WHERE id = 2; RETURN NULL;")
	_, err := load(t.Context(), pool, target, lines(1, 3, "body"))
	wantErr(t, err, idem.ErrNotStored)
}

func TestCopyOnce_ALaterTriggersChangeIsNotAChangedRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target, part := partitioned(t, pool)
	target.Compare = []string{"body"}
	trigger(t, pool, part, "AFTER", "UPDATE "+target.Table.Sanitize()+" SET body = upper(body) WHERE id = NEW.id; RETURN NULL;")
	for _, want := range []idem.Counts{{Rows: 3, Inserted: 3}, {Rows: 3, Changed: 3, FirstChanged: 1}} {
		got, err := load(t.Context(), pool, target, lines(1, 3, "body"))
		if err != nil {
			t.Fatal(err)
		}
		wantCounts(t, got, want)
	}
}
