package pglock_test

import (
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// With standard_conforming_strings off a backslash in quotes begins an escape: in the
// migrations, in our statements, and in the functions whenever such a session calls them.
func TestGuard_WhateverABackslashMeans(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyDatabase(t)
	owner := pgtest.Connect(t, url)
	if owner.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		t.Skip("pgx itself refuses the simple protocol then")
	}
	exec(t, owner, `ALTER DATABASE `+pgx.Identifier{owner.Config().ConnConfig.Database}.Sanitize()+` SET standard_conforming_strings = off`)
	owner.Reset()
	if err := migrations.Up(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, `CREATE TABLE public.g (lease text NOT NULL)`)
	if err := pglock.GuardTable(t.Context(), owner, pgx.Identifier{"public", "g"}, pglock.GuardOptions{LeaseColumn: "lease"}); err != nil {
		t.Fatal(err)
	}
	if all, err := pglock.Guards(t.Context(), owner); err != nil || len(all) != 1 || all[0].LeaseColumn != "lease" || len(all[0].Holes) > 0 {
		t.Errorf("guards are %+v, %v", all, err)
	}
	const name = `a%b/c d\é`
	l := acquire(t, client(t, owner, pglock.Config{}), name, nil)
	if err := l.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO public.g VALUES ($1)`, name)
		return err
	}); err != nil {
		t.Error(err)
	}
	_, err := owner.Exec(t.Context(), `INSERT INTO public.g VALUES ($1)`, name)
	wantGuard(t, "without a fence", err)
}
