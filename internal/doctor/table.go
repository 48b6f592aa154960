package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/gen/doctordb"
)

// checkUnlogged looks for tables that a crash empties. The waiters are meant to be one.
func checkUnlogged(_ context.Context, v *visit) error {
	for _, name := range v.tableNames() {
		t, known := ours(name)
		unlogged := v.tables[name].Persistence == "u"
		switch {
		case unlogged && !t.unlogged:
			v.weakens(qualified(name), "The table is UNLOGGED: a crash empties it, and a standby doesn't have it.",
				fmt.Sprintf("ALTER TABLE gatepost.%s SET LOGGED;", name))
		case known && t.unlogged && !unlogged:
			v.note(qualified(name), "The table is meant to be UNLOGGED: each wait writes WAL, for hints that nothing depends on.",
				fmt.Sprintf("ALTER TABLE gatepost.%s SET UNLOGGED;", name))
		}
	}
	return nil
}

// tableNames are the plain tables of the schema, in order.
func (v *visit) tableNames() (names []string) {
	for name, t := range v.tables {
		if t.Kind == "r" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// plain says that a table is there, and is one.
func (e *examination) plain(name string) bool { return e.tables[name].Kind == "r" }

// option reads a storage parameter of a table.
func option(t doctordb.TableListRow, name string) (string, bool) {
	for _, o := range t.Options {
		if value, ok := strings.CutPrefix(o, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// checkFillfactor looks for tables whose pages have less room than they should.
func checkFillfactor(_ context.Context, v *visit) error {
	for _, t := range inventory {
		row := v.tables[t.name]
		if t.fillfactor == 0 || !v.plain(t.name) {
			continue
		}
		got, set := option(row, "fillfactor")
		if got == fmt.Sprint(t.fillfactor) {
			continue
		}
		if !set {
			got = "100"
		}
		v.note(qualified(t.name), fmt.Sprintf("The fillfactor is %s, not %d: updates find no room in their page, "+
			"and have to write every index.", got, t.fillfactor),
			fmt.Sprintf("ALTER TABLE gatepost.%s SET (fillfactor = %d);", t.name, t.fillfactor))
	}
	return nil
}

// finisher is the trigger that refuses a COMMIT with a claim that still runs.
const finisher = "idempotency_keys_finished"

// makeFinisher makes it; bareFinisher is what it is then, as bare leaves it.
const (
	makeFinisher = "CREATE CONSTRAINT TRIGGER " + finisher + " AFTER INSERT OR UPDATE ON gatepost.idempotency_keys " +
		"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.state = 1 AND new.lease_until IS NULL) " +
		"EXECUTE FUNCTION gatepost." + finisher + "();"
	bareFinisher = "createconstrainttrigger" + finisher + "afterinsertorupdateongatepost.idempotency_keys" +
		"deferrableinitiallydeferredforeachrowwhennew.state=1andnew.lease_untilisnull" +
		"executefunctiongatepost." + finisher
)

// checkTriggers looks for triggers that should be there, and others.
func checkTriggers(ctx context.Context, v *visit) error {
	rows, err := v.q.TriggerList(ctx)
	if err != nil {
		return err
	}
	finishes := !v.plain("idempotency_keys")
	for _, t := range rows {
		if t.Name == finisher && t.TableName == "idempotency_keys" {
			finishes = true
			v.judgeFinisher(t)
			continue
		}
		name := ident(t.Name)
		if t.Rewrites && t.Enabled != "D" {
			v.weakens(qualified(t.TableName), fmt.Sprintf("The trigger %s is not Gatepost's, and runs before each row is written: it can change a "+
				"token, or leave the row out.", t.Name), fmt.Sprintf("DROP TRIGGER %s ON gatepost.%s;", name, t.TableName))
			continue
		}
		v.note(qualified(t.TableName), fmt.Sprintf("The trigger %s is not Gatepost's: it runs with each acquisition or call, "+
			"and what it raises makes them fail.", t.Name), fmt.Sprintf("DROP TRIGGER %s ON gatepost.%s;", name, t.TableName))
	}
	if !finishes {
		v.weakens("gatepost.idempotency_keys", "The trigger "+finisher+" is missing: an effect may be committed without its record, "+
			"and run again.", makeFinisher)
	}
	return nil
}

func (v *visit) judgeFinisher(t doctordb.TriggerListRow) {
	if bare(t.Definition) != bareFinisher {
		v.weakens("gatepost.idempotency_keys", "The trigger "+finisher+" was changed: an effect may be committed without its record, "+
			"and run again.", "BEGIN; DROP TRIGGER "+finisher+" ON gatepost.idempotency_keys; "+makeFinisher+" COMMIT;")
		return
	}
	if t.Enabled != "O" && t.Enabled != "A" {
		v.weakens("gatepost.idempotency_keys", "The trigger "+finisher+" is disabled: an effect may be committed without its record, "+
			"and run again.", "ALTER TABLE gatepost.idempotency_keys ENABLE TRIGGER "+finisher+";")
	}
}

// checkRewrites looks for what makes a statement see or do something else.
func checkRewrites(ctx context.Context, v *visit) error {
	for _, name := range v.tableNames() {
		if v.tables[name].RowSecurity {
			v.weakens(qualified(name), "Row security is on: a row that a policy hides looks like a name that is free, or a key that is new.",
				fmt.Sprintf("ALTER TABLE gatepost.%s DISABLE ROW LEVEL SECURITY;", name))
		}
	}
	rules, err := v.q.RuleList(ctx)
	for _, r := range rules {
		v.weakens(qualified(r.TableName), fmt.Sprintf("The rule %s rewrites statements: they may do something else, or nothing.", r.Name),
			fmt.Sprintf("DROP RULE %s ON gatepost.%s;", ident(r.Name), r.TableName))
	}
	return err
}

// checkPublicGrants looks for tables that every role may change.
func checkPublicGrants(ctx context.Context, v *visit) error {
	grants, err := v.q.GrantList(ctx)
	for _, g := range grants {
		v.weakens(qualified(g.TableName), fmt.Sprintf("Every role has %s on it: whoever connects can change tokens and keys by hand.", g.Privileges),
			fmt.Sprintf("REVOKE %s ON gatepost.%s FROM PUBLIC;", g.Privileges, g.TableName))
	}
	return err
}
