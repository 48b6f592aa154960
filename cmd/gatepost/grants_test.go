package main

import (
	"strings"
	"testing"
)

func TestMigrate_GrantsNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://127.0.0.1:1/none"
	want(t, gatepost(t, nowhere, "migrate", "grants", `my "app"`), 0, `GRANT USAGE ON SCHEMA gatepost TO "my ""app""";`)
	want(t, gatepost(t, nowhere, "migrate", "grants", "app"), 0, "ON gatepost.leases TO")
	r := gatepost(t, nowhere, "migrate", "grants", "worker", "--fence-only")
	want(t, r, 0, "gatepost.try_fence(text, integer, bigint, uuid)")
	lacks(t, r, "gatepost.leases")
	want(t, gatepost(t, nowhere, "migrate", "grants"), 2, "ROLE is missing; usage: gatepost migrate grants ROLE; for example: gatepost migrate grants app | psql")
	want(t, gatepost(t, nowhere, "migrate", "grants", ""), 2, "not empty")
}

func lacks(t *testing.T, r result, part string) {
	t.Helper()
	if strings.Contains(r.stdout, part) {
		t.Errorf("it printed %q, which has %q in it", r.stdout, part)
	}
}
