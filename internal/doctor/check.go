package doctor

import "context"

// check is one thing to look at.
type check struct {
	id    string
	looks string // what it looks at

	primary   bool     // it means nothing on a standby
	role      bool     // it is about Options.Role
	inventory bool     // it compares with the schema of this program's version
	reads     []string // tables of gatepost whose rows it reads; it is skipped where one is missing
	asks      string   // a table that it reads where it is there

	run func(context.Context, *visit) error
}

// checks are all of them, in the order in which they are made and told. Those on the
// tables come after schema, which says whether they mean something.
var checks = []check{
	{id: "standby", looks: "whether this server is a standby", run: checkStandby},
	{id: "server-version", looks: "the server's version", run: checkVersion},
	{id: "schema", looks: "the schema's version", asks: "schema_migrations", run: checkSchema},
	{id: "columns", looks: "the tables' columns", inventory: true, run: checkColumns},
	{id: "primary-key", looks: "the keys that make a name, a resource, a claim one row", inventory: true, run: checkPrimaryKeys},
	{id: "constraint", looks: "the tables' and domains' constraints", inventory: true, run: checkConstraints},
	{id: "token-index", looks: "the unique index on a lease's token", run: checkTokenIndex},
	{id: "index", looks: "the other indexes that statements rely on", inventory: true, run: checkIndexes},
	{id: "extra-index", looks: "other indexes on columns that heartbeats change", run: checkExtraIndexes},
	{id: "unlogged", looks: "tables that a crash empties", run: checkUnlogged},
	{id: "trigger", looks: "triggers on the tables", inventory: true, run: checkTriggers},
	{id: "function", looks: "the functions of fences and guards", inventory: true, run: checkFunctions},
	{id: "row-rewrite", looks: "row security and rules on the tables", run: checkRewrites},
	{id: "public-grant", looks: "what everybody may do with the tables", run: checkPublicGrants},

	{id: "fsync", looks: "fsync and full_page_writes", run: checkFsync},
	{id: "synchronous-commit", looks: "synchronous_commit of the server, databases and roles", primary: true, run: checkSynchronousCommit},
	{id: "replication", looks: "whether a standby may miss commits", primary: true, run: checkReplication},
	{id: "replication-role", looks: "settings that switch triggers off", run: checkReplicationRole},

	{id: "preset", looks: "roles that bring a fence along", run: checkPresets},
	{id: "guard", looks: "holes in the guards of tables", inventory: true, run: checkGuards},
	{id: "subscribed", looks: "guarded tables that replication writes to", inventory: true, run: checkSubscribed},

	{id: "prepared", looks: "prepared transactions on a lease", primary: true, reads: []string{"leases"}, run: checkPrepared},
	{id: "fenced", looks: "transactions that lock a lease for too long", primary: true, reads: []string{"leases"}, run: checkFenced},
	{id: "lapsed", looks: "leases that lapsed and were never released", reads: []string{"leases"}, run: checkLapsed},
	{id: "overlong", looks: "leases that last longer than a TTL can be", inventory: true, reads: []string{"leases"}, run: checkOverlong},
	{id: "clock-back", looks: "whether the server's clock was set back", reads: []string{"leases"}, run: checkClockBack},
	{id: "clock-difference", looks: "this machine's clock against the server's", run: checkClockDifference},

	{id: "key-backlog", looks: "expired idempotency keys", reads: []string{"idempotency_keys"}, run: checkKeyBacklog},
	{id: "key-running", looks: "idempotency keys in doubt", reads: []string{"idempotency_keys"}, run: checkKeyRunning},

	{id: "horizon", looks: "transactions that keep old rows", primary: true, run: checkHorizon},
	{id: "slot", looks: "replication slots that keep old rows", primary: true, run: checkSlots},
	{id: "dead-rows", looks: "rows that VACUUM has not removed", primary: true, run: checkDeadRows},
	{id: "hot-share", looks: "whether heartbeats stay off the indexes", primary: true, reads: []string{"leases"}, run: checkHotShare},
	{id: "fillfactor", looks: "the room that heartbeats need in a page", inventory: true, run: checkFillfactor},
	{id: "autovacuum", looks: "whether autovacuum works on the tables", run: checkAutovacuum},
	{id: "wraparound", looks: "how long ago the tables were frozen", primary: true, run: checkWraparound},

	{id: "privilege", looks: "the privileges of the role of --role", role: true, inventory: true, run: checkPrivileges},
	{id: "owner", looks: "whether the role of --role stands above the guards", role: true, inventory: true, run: checkOwner},
	{id: "excess", looks: "what the role of --role may do and needn't", role: true, inventory: true, run: checkExcess},
}
