// Package idem makes running twice harmless, which is better than trying not to
// run twice: no lock is needed where a unique key decides.
//
// # What is not promised
//
// A unique key protects the rows of its table. It says nothing of a mail that
// was sent or a card that was charged on the way. And it protects only what it
// covers: a key made of what changes between two runs (a time, a random id, a
// sequence) makes every row a new one.
//
// # What is here
//
// InsertOnce inserts one row under a unique key and returns the row that is
// there, its own or the one that was first. CopyOnce loads many rows under a
// unique key, each once, with exact counts. Both run on the caller's
// transaction, need none of Gatepost's tables, and are safe against any number
// of concurrent callers by the table's own constraint.
//
// # What goes wrong elsewhere
//
// SELECT and then INSERT lets two callers both find nothing. MERGE is not safe
// against concurrent inserts: it fails with 23505, or inserts twice without a
// constraint. ON CONFLICT DO UPDATE, used as a no-op to read the row back,
// writes a new version of it each time, and fails with 21000 on duplicates
// inside one statement. A skipped insert still uses up a sequence value.
package idem
