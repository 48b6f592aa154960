package doctor

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
)

// commitGrace is how long a COMMIT may take beyond the limit of a fenced transaction.
const commitGrace = 5 * time.Second

// checkPrepared looks for prepared transactions that lock a lease: they hold the next
// holder off through disconnect and restart, and no timeout ends them.
func checkPrepared(ctx context.Context, v *visit) error {
	if err := v.judgePreparable(ctx); err != nil {
		return err
	}
	rows, err := v.q.LeaseLockers(ctx)
	for _, group := range byLocker(rows) {
		first := group[0]
		if first.Gid == "" {
			continue
		}
		v.weakens("lease "+first.Name, fmt.Sprintf("The prepared transaction %q%s has locked it%s for %s: nobody can acquire it until "+
			"that one is ended, and no timeout does so.", first.Gid, owner(first), others(group), since(first.OpenUs)),
			fmt.Sprintf("ROLLBACK PREPARED %s;", literal(first.Gid)), fmt.Sprintf("-- or: COMMIT PREPARED %s;", literal(first.Gid)))
	}
	return err
}

func (v *visit) judgePreparable(ctx context.Context) error {
	const name = "max_prepared_transactions"
	settings, err := v.q.SettingList(ctx, []string{name})
	for _, s := range settings {
		if s.Setting != "0" {
			v.note(name, fmt.Sprintf("It is %s: a fenced transaction can be prepared, and keeps the lease's next holder out until "+
				"somebody ends it.", s.Setting), "-- if nothing here uses two-phase commit, then, and after a restart:", "ALTER SYSTEM SET "+name+" = 0;")
		}
	}
	return err
}

// checkFenced looks for fenced transactions beyond their limit.
func checkFenced(ctx context.Context, v *visit) error {
	rows, err := v.q.LeaseLockers(ctx)
	for _, group := range byLocker(rows) {
		first := group[0]
		switch {
		case first.Gid != "": // told by prepared
		case first.State == "":
			v.unseenStats("for how long another role's transaction has locked the lease " + first.Name)
		case duration(first.OpenUs) > v.opts.FenceTimeout+commitGrace:
			v.tellFenced(group)
		}
	}
	return err
}

func (v *visit) tellFenced(group []doctordb.LeaseLockersRow) {
	l := group[0]
	who := operator.Locker{PID: int(l.Pid), User: l.Username, Application: l.Application, Address: l.Address}
	doing := fmt.Sprintf("%s for %s", l.State, since(l.StateUs))
	if l.State == "active" && l.WaitEvent == "ClientRead" {
		doing = fmt.Sprintf("for %s in a COPY whose client sends nothing, which no timeout ends", since(l.StateUs))
	}
	v.weakens("lease "+l.Name, fmt.Sprintf("A transaction of %s has locked it%s for %s (%s): when the lease lapses, nobody can acquire it "+
		"until that one ends.", who, others(group), since(l.OpenUs), doing),
		release(l.Name, l.Token, " --terminate"),
		fmt.Sprintf("-- or only end the transaction: SELECT pg_terminate_backend(%d);", l.Pid))
}

// byLocker puts the leases of one transaction together, in the order of the first.
func byLocker(rows []doctordb.LeaseLockersRow) (groups [][]doctordb.LeaseLockersRow) {
	type key struct {
		pid int32
		gid string
	}
	at := map[key]int{}
	for _, r := range rows {
		k := key{r.Pid, r.Gid}
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

func others(group []doctordb.LeaseLockersRow) string {
	if len(group) == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(group)-1)
}

func owner(r doctordb.LeaseLockersRow) string {
	if r.Username == "" {
		return ""
	}
	return " of " + r.Username
}

// duration is that many microseconds; the longest there is of more, as of a token that
// was written by hand.
func duration(us int64) time.Duration {
	most := int64(math.MaxInt64 / time.Microsecond)
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

func since(us int64) string { return cli.Duration(duration(us)) }

// release is the command that releases a lease, also one whose name begins as a flag does.
func release(name string, token int64, flags string) string {
	if strings.HasPrefix(name, "-") {
		return fmt.Sprintf("gatepost release --token %d%s -- %s", token, flags, shellWord(name))
	}
	return fmt.Sprintf("gatepost release %s --token %d%s", shellWord(name), token, flags)
}

// shellWord quotes a word for a shell, where it needs that.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_./:@%+,-", r)
	}
	if strings.TrimFunc(s, plain) == "" && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
