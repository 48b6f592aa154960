package pglock_test

import (
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A text that isn't ISO pgx can't read as a time, so none is asked for in pgx's default mode.
func TestList_WhateverTheDateStyleIs(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		if cfg.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
			t.Skip("the other modes read times as text, or are this one's")
		}
		cfg.ConnConfig.RuntimeParams["datestyle"] = "SQL, DMY"
	})
	c, name := client(t, pool, pglock.Config{}), pgtest.Name(t)
	l := acquire(t, c, name, nil)
	for range 2 {
		all, err := c.List(t.Context(), &pglock.ListOptions{Prefix: name})
		if err != nil || len(all) != 1 || all[0].Token != l.Token() {
			t.Errorf("List: %+v, %v", all, err)
		}
	}
}
