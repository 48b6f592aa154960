package main

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
)

const birdstrikes = "testdata/birdstrikes.csv"

// importJSON runs "fileimport import --json" and returns the counts.
func importJSON(t *testing.T, url string, args ...string) tally {
	t.Helper()
	r := runProgram(t, append([]string{"import", "--json", "--database-url", url}, args...)...)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	var got tally
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatalf("%v in %q", err, r.stdout)
	}
	return got
}

func wantTally(t *testing.T, what string, got, want tally) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestImport_TwiceInsertsOnce(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"file-line", "content"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			wantTally(t, "first", importJSON(t, url, birdstrikes, "--key", key), tally{Records: 10000, Inserted: 10000})
			wantTally(t, "again", importJSON(t, url, birdstrikes, "--key", key), tally{Records: 10000, Existed: 10000})
			if n := count(t, pgtest.Connect(t, url), "birdstrikes"); n != 10000 {
				t.Errorf("%d rows, want 10000", n)
			}
		})
	}
}

func TestImport_SameContentUnderAnotherNameIsTheSameFile(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	importJSON(t, url, write(t, "first.csv", "id,name\n1,a\n2,b\n"))
	other := write(t, "other.csv", "id,name\n1,a\n2,b\n")
	wantTally(t, "other name", importJSON(t, url, other), tally{Records: 2, Existed: 2})
	if n := count(t, pgtest.Connect(t, url), "other"); n != 0 {
		t.Errorf("it made a table of its own with %d rows", n)
	}
}

func TestImport_AnotherKeyIsAnotherTable(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	file := write(t, "same.csv", "id,name\n1,a\n1,a\n")
	for _, key := range []string{"file-line", "content", "natural:id", "file-line"} {
		first, again := importJSON(t, url, file, "--key", key), importJSON(t, url, file, "--key", key)
		if again.Inserted != 0 {
			t.Errorf("%s: %+v, and again %+v", key, first, again)
		}
	}
	pool := pgtest.Connect(t, url)
	for table, want := range map[string]int{"same": 2, "same_content": 2, "same_natural": 1} {
		if n := count(t, pool, table); n != want {
			t.Errorf("%s has %d rows, want %d", table, n, want)
		}
	}
}

func TestImport_EveryFieldArrivesAsItWas(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	file := write(t, "odd.csv", "\xef\xbb\xbfa,\"b,\"\"c\"\"\",\r\n"+
		"\"x,y\",\"he said \"\"hi\"\"\",\r\n"+
		"\"line1\r\nline2\",,\"\"\r\n"+
		"\r\n"+
		"\\.,ü,last")
	wantTally(t, "odd", importJSON(t, url, file), tally{Records: 3, Inserted: 3})
	got := text(t, pgtest.Connect(t, url), `SELECT string_agg(concat_ws('|', gatepost_line::text, a, coalesce("b,""c""", 'NULL'), coalesce(column_3, 'NULL')), E'\n' ORDER BY gatepost_line) FROM odd`)
	want := "2|x,y|he said \"hi\"|NULL\n3|line1\r\nline2|NULL|\n6|\\.|ü|last"
	if got != want {
		t.Errorf("table has %q, want %q", got, want)
	}
}

func TestImport_EmptyFileAndHeaderOnlyAreZeroRecords(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	wantTally(t, "empty", importJSON(t, url, write(t, "empty.csv", "")), tally{})
	wantTally(t, "header", importJSON(t, url, write(t, "header.csv", "a,b")), tally{})
	pool := pgtest.Connect(t, url)
	if got := text(t, pool, `SELECT (to_regclass('empty') IS NULL AND to_regclass('header') IS NOT NULL)::text`); got != "true" {
		t.Error("want a table for the header and none for the empty file")
	}
}

func TestImport_OverlappingExportsKeepEqualRecordsApart(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	first := write(t, "monday.csv", "a\nx\nx\ny\n")
	second := write(t, "tuesday.csv", "a\ny\nx\nx\nx\nz\n")
	importJSON(t, url, first, "--key", "content", "--table", "days")
	wantTally(t, "second", importJSON(t, url, second, "--key", "content", "--table", "days"),
		tally{Records: 5, Inserted: 2, Existed: 3})
}

func TestImport_NaturalKey(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	args := []string{"--table", "orders", "--key", "natural:id"}
	first := write(t, "a.csv", "id,name\n1,one\n2,two\n1,one\n")
	wantTally(t, "first", importJSON(t, url, append(args, first)...), tally{Records: 3, Inserted: 2, Duplicate: 1})
	wantTally(t, "again", importJSON(t, url, append(args, first)...), tally{Records: 3, Existed: 2, Duplicate: 1})

	other := write(t, "b.csv", "id,name\n3,three\n2,TWO\n")
	oneLineWith(t, runProgram(t, append([]string{"import", "--database-url", url, other}, args...)...), 1,
		"line 3", "with other content", "--on-change skip")
	pool := pgtest.Connect(t, url)
	if n := count(t, pool, "orders"); n != 2 {
		t.Errorf("%d rows after the refused file, want 2", n)
	}
	wantTally(t, "skip", importJSON(t, url, append(args, other, "--on-change", "skip")...),
		tally{Records: 2, Inserted: 1, Changed: 1})
	if got := text(t, pool, `SELECT name FROM orders WHERE id = '2'`); got != "two" {
		t.Errorf("the existing row has %q, want it left alone", got)
	}

	inFile := write(t, "c.csv", "id,name\n7,a\n7,b\n")
	oneLineWith(t, runProgram(t, append([]string{"import", "--database-url", url, inFile}, args...)...), 1, "line 3", "came before")
	noKey := write(t, "d.csv", "id,name\n,a\n")
	oneLineWith(t, runProgram(t, append([]string{"import", "--database-url", url, noKey}, args...)...), 1, "line 2", `"id" is empty`)
}

func TestImport_IntoATableThatIsThere(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, url)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE typed (id int PRIMARY KEY, at date, note text DEFAULT 'x', extra text)`); err != nil {
		t.Fatal(err)
	}
	args := []string{"--table", "public.typed", "--key", "natural:id"}
	file := write(t, "typed.csv", "id,at,note\n1,2026-11-30,\n2,,b\n")
	wantTally(t, "typed", importJSON(t, url, append(args, file)...), tally{Records: 2, Inserted: 2})
	wantTally(t, "again", importJSON(t, url, append(args, file)...), tally{Records: 2, Existed: 2})

	bad := write(t, "bad.csv", "id,at,note\n3,2026-11-30,a\nfour,2026-11-30,b\n")
	oneLineWith(t, runProgram(t, append([]string{"import", "--database-url", url, bad}, args...)...), 1, "bad.csv", "line 3", "column id", "four", "22P02")
	oneLineWith(t, runProgram(t, "import", "--database-url", url, file, "--table", "typed"), 1, "gatepost_file", "--key natural:")
	wide := write(t, "wide.csv", "id,unknown\n3,a\n")
	oneLineWith(t, runProgram(t, append([]string{"import", "--database-url", url, wide}, args...)...), 1, `no column "unknown"`)
	if n := count(t, pool, "typed"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func TestImport_SetsBadRecordsAside(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	file := write(t, "bad.csv", "a,b\n1,one\n2\n3,th\xffree\n4,fo\x00ur\n5,five\n\"6,six\n7,seven\n")
	r := runProgram(t, "import", "--database-url", url, file)
	oneLineWith(t, r, 1, "bad.csv: line 3", "has 1 field", "nothing was imported")
	r = runProgram(t, "import", "--database-url", url, file, "--max-rejects", "3")
	oneLineWith(t, r, 1, "bad.csv: line 7", "nothing was imported")
	pool := pgtest.Connect(t, url)
	if n := count(t, pool, "bad"); n != 0 {
		t.Errorf("%d rows of a refused file", n)
	}
	wantTally(t, "first", importJSON(t, url, file, "--max-rejects", "4"), tally{Records: 7, Inserted: 3, Rejected: 4})
	wantTally(t, "again", importJSON(t, url, file, "--max-rejects", "4"), tally{Records: 7, Existed: 3, Rejected: 4})
	if got := text(t, pool, `SELECT string_agg(line::text, ',' ORDER BY line) FROM gatepost.import_rejects`); got != "3,4,5,7" {
		t.Errorf("rejected lines are %s", got)
	}
}

func TestImport_BadInputIsOneClearLine(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	empty := pgtest.EmptyDatabase(t)
	good := write(t, "good.csv", "a,b\n1,2\n")
	pool := pgtest.Connect(t, url)
	elsewhere := strings.Replace(url, "/"+pool.Config().ConnConfig.Database, "/gatepost_none", 1)
	if _, err := pool.Exec(t.Context(), `CREATE VIEW information_views AS SELECT 1 AS a, 2 AS b`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code  int
		want  string
		other []string
	}{
		{1, "no such file", []string{"does-not-exist.csv"}},
		{1, "not a regular file", []string{t.TempDir()}},
		{1, "PNG", []string{write(t, "image.csv", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")}},
		{1, "gzip", []string{write(t, "zip.csv", "\x1f\x8b\x08\x00\x00")}},
		{1, "UTF-16", []string{write(t, "utf16.csv", "\xff\xfea\x00,\x00b\x00\n\x00")}},
		{1, "line 3", []string{write(t, "columns.csv", "a,b\n1,2\n1,2,3\n")}},
		{1, "UTF-8", []string{write(t, "latin1.csv", "a,b\n1,caf\xe9\n")}},
		{1, "--delimiter", []string{write(t, "semicolon.csv", "a;b\n1;2\n")}},
		{1, "doesn't look like CSV", []string{write(t, "prose.csv", "This is not a table at all.\nBye\n")}},
		{1, "doesn't look like CSV", []string{write(t, "page.csv", "<html>\n<body></body>\n")}},
		{1, "gatepost migrate up", []string{good, "--database-url", empty}},
		{1, "correct the database in --database-url", []string{good, "--database-url", elsewhere}},
		{1, "no connection", []string{good, "--database-url", "postgres://nobody@127.0.0.1:1/x?connect_timeout=2"}},
		{2, "--key", []string{good, "--key", "line"}},
		{2, "no column", []string{good, "--key", "natural:zz"}},
		{2, "--table", []string{good, "--table", "a.b.c"}},
		{2, "isn't for an application", []string{good, "--table", "pg_temp.x"}},
		{1, "not a table", []string{good, "--table", "information_views"}},
		{2, "unknown flag", []string{good, "--tabel", "x"}},
		{2, "which file", nil},
	} {
		args := append([]string{"import", "--database-url", url}, c.other...)
		oneLineWith(t, runProgram(t, args...), c.code, c.want)
	}
	if n := text(t, pool, `SELECT count(*)::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind <> 'v'`); n != "0" {
		t.Errorf("%s relations are left in public", n)
	}
}

func TestImport_SaysThatARepairedFileIsANewOne(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	importJSON(t, url, write(t, "o.csv", "a\n1\n"))
	r := runProgram(t, "import", "--database-url", url, write(t, "o.csv", "a\n1\n2\n"))
	if r.code != 0 || !strings.Contains(r.stderr, "use --key content") {
		t.Errorf("exit code %d, stderr %q; want a note", r.code, r.stderr)
	}
}

func TestImport_KeepsTextWhateverTheDatabasesDefault(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := pgtest.Connect(t, pgtest.Owner(t, url))
	if _, err := pool.Exec(t.Context(), `DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET client_encoding = latin1', current_database()); END$$`); err != nil {
		t.Fatal(err)
	}
	importJSON(t, url, write(t, "names.csv", "é\nü€\n"))
	if got := text(t, pool, `SELECT "é" FROM names`); got != "ü€" {
		t.Errorf("stored %q", got)
	}
}

func TestImport_ResultThatCantBePrintedIsAnError(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	cmd := program(t, "import", "--database-url", pgtest.Database(t), write(t, "a.csv", "a\n1\n"))
	cmd.Stdout = full
	if err := cmd.Run(); err == nil {
		t.Error("exit code 0, though the result is lost")
	}
}

func TestImport_WithoutPrivilegesChangesNothing(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	owner := pgtest.Connect(t, pgtest.Owner(t, database))
	role := "nobody_" + text(t, owner, `SELECT md5(random()::text)`)
	for _, sql := range []string{"CREATE ROLE " + role + " LOGIN", "GRANT CONNECT ON DATABASE " + owner.Config().ConnConfig.Database + " TO " + role} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_, _ = owner.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role)
		_, _ = owner.Exec(context.WithoutCancel(t.Context()), "DROP ROLE "+role)
	})
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	r := runProgram(t, "import", birdstrikes, "--database-url", u.String())
	oneLineWith(t, r, 1, "permission denied", "gatepost migrate grants ROLE")
}
