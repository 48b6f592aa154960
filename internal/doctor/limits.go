package doctor

import (
	"cmp"
	"time"
)

// Limits say from where on something is told; 0 is the default.
type Limits struct {
	Open       time.Duration // that a transaction keeps old rows; 15 min
	Lapsed     time.Duration // since a lease or claim lapsed; 1 h
	Backlog    time.Duration // since an idempotency key expired; 24 h
	Clock      time.Duration // between two clocks; 1 s
	SlotXIDs   int64         // since a replication slot's view; 1,000,000 transactions
	TableXIDs  int64         // since a table's last freeze, transactions or sets; 1,000,000,000
	DeadRows   int64         // in one table; 10,000
	HotUpdates int64         // before their share counts; 1,000
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Open:       cmp.Or(l.Open, 15*time.Minute),
		Lapsed:     cmp.Or(l.Lapsed, time.Hour),
		Backlog:    cmp.Or(l.Backlog, 24*time.Hour),
		Clock:      cmp.Or(l.Clock, time.Second),
		SlotXIDs:   cmp.Or(l.SlotXIDs, 1_000_000),
		TableXIDs:  cmp.Or(l.TableXIDs, 1_000_000_000),
		DeadRows:   cmp.Or(l.DeadRows, 10_000),
		HotUpdates: cmp.Or(l.HotUpdates, 1_000),
	}
}
