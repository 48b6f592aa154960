package incident

import (
	"fmt"

	"github.com/gatepost/gatepost/internal/cli"
)

// act is one way to import, and what has to come of it.
type act struct {
	guard   string // the importers', see newGuard
	title   string
	intro   string
	tables  string // SQL: makes the tables that it works on
	lapsed  string // SQL: whether the lease is over; empty: there is no lease
	onWake  string // the event that A's waking has to lead to; empty: none
	check   func(options, outcome) error
	explain func(options, outcome) string
	lesson  string // for the table at the end, 24 characters
}

// outcome is what an act came to.
type outcome struct {
	rows, distinct int64
	refused        int64 // writes, as the importers reported them
	a, b           event // how each importer ended
	tokenA, tokenB int64
}

func (o outcome) duplicates() int64 { return o.rows - o.distinct }

const ordersTable = `
	DROP TABLE IF EXISTS demo.orders, demo.position, demo.naive_lease;
	CREATE TABLE demo.orders (file text NOT NULL, line bigint NOT NULL, content text NOT NULL, importer text NOT NULL);
	CREATE TABLE demo.position (line bigint NOT NULL);
	INSERT INTO demo.position VALUES (0);`

var acts = []act{
	{
		guard: guardNaive,
		title: "a lease alone",
		intro: "Who holds the lease imports, and renews it before each batch. The renewal\n" +
			"doesn't ask whose lease it is, as in the incident. How far the file has been\n" +
			"imported is stored with each batch, so that the next importer can go on there.",
		tables: ordersTable + naiveTable,
		lapsed: `SELECT expires_at <= clock_timestamp() FROM demo.naive_lease WHERE name = $1`,
		onWake: eventRenewed,
		check:  checkNaive,
		explain: func(o options, _ outcome) string {
			return fmt.Sprintf("A had imported %s when it was stopped. B went on behind that, and so did A when\n"+
				"it woke up: each of the other %s records is there twice. A renewal that asks\n"+
				"whose lease it is does not fix it: the stop can come between it and the write.",
				cli.Number(o.batch()), cli.Number(o.records-o.batch()))
		},
		lesson: "says who should, no more",
	},
	{
		guard: guardFenced,
		title: "the fenced transaction",
		intro: "A lease of pglock, and each batch is a fenced transaction: it commits only if\n" +
			"its token is still the current one. A real program stops when Done is closed.\n" +
			"These importers ignore Done on purpose, so that you see the database refuse.",
		tables: ordersTable,
		lapsed: `SELECT expires_at <= clock_timestamp() FROM gatepost.leases WHERE name = $1`,
		onWake: eventRefused,
		check:  checkFenced,
		explain: func(o options, _ outcome) string {
			return fmt.Sprintf("What A had committed before the stop, %s, stayed, and B went on behind it.\n"+
				"What A tried after that was refused by the database: *pglock.FencedError.", cli.Number(o.batch()))
		},
		lesson: "who lost it cannot write",
	},
	{
		guard: guardKeyed,
		title: "the unique key",
		intro: "No lease and no fence, so nothing has to lapse: B begins at once, and both\n" +
			"import the whole file, side by side. The table has UNIQUE (file, line), and\n" +
			"idem.CopyOnce leaves out what is there.",
		tables: ordersTable + `ALTER TABLE demo.orders ADD UNIQUE (file, line);`,
		check:  checkKeyed,
		explain: func(_ options, out outcome) string {
			return fmt.Sprintf("                inserted   already there\n"+
				"  importer A  %10s      %10s\n"+
				"  importer B  %10s      %10s\n"+
				"Both ran to the end, and it was harmless. Who is faster varies.",
				cli.Number(out.a.Inserted), cli.Number(out.a.Existed), cli.Number(out.b.Inserted), cli.Number(out.b.Existed))
		},
		lesson: "twice is harmless",
	},
}

func checkNaive(o options, out outcome) error {
	left := o.records - o.batch()
	return firstWrong(
		equal("records inserted by A", out.a.Inserted, o.records),
		equal("records inserted by B", out.b.Inserted, left),
		equal("records in the table", out.distinct, o.records),
		equal("duplicates", out.duplicates(), left),
		equal("refused writes", out.refused, 0),
	)
}

func checkFenced(o options, out outcome) error {
	if out.tokenB <= out.tokenA {
		return fmt.Errorf("B's token %d is not above A's %d", out.tokenB, out.tokenA)
	}
	return firstWrong(
		equal("refused token", out.a.Token, out.tokenA),
		equal("current token in the refusal", out.a.Current, out.tokenB),
		equal("records inserted by A", out.a.Inserted, o.batch()),
		equal("records inserted by B", out.b.Inserted, o.records-o.batch()),
		equal("records in the table", out.distinct, o.records),
		equal("duplicates", out.duplicates(), 0),
		equal("refused writes", out.refused, 1),
	)
}

func checkKeyed(o options, out outcome) error {
	return firstWrong(
		equal("records that A went through", out.a.Inserted+out.a.Existed, o.records),
		equal("records that B went through", out.b.Inserted+out.b.Existed, o.records),
		equal("records inserted by A and B", out.a.Inserted+out.b.Inserted, o.records),
		equal("records in the table", out.distinct, o.records),
		equal("duplicates", out.duplicates(), 0),
		equal("refused writes", out.refused, 0),
	)
}

func equal(what string, got, want int64) error {
	if got != want {
		return fmt.Errorf("%s: %s, not the %s that were promised", what, cli.Number(got), cli.Number(want))
	}
	return nil
}

func firstWrong(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
