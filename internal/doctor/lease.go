package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/gatepost/gatepost/internal/cli"
)

// shown is how many of many are named.
const shown = 3

// checkLapsed looks for leases whose holder went away without a word, long ago.
func checkLapsed(ctx context.Context, v *visit) error {
	rows, err := v.q.LeaseLapsed(ctx, doctordb.LeaseLapsedParams{AgeUs: v.opts.Limits.Lapsed.Microseconds(), Most: shown})
	if err != nil || len(rows) == 0 {
		return err
	}
	var names, remedy []string
	for _, r := range rows {
		names = append(names, fmt.Sprintf("%s, of %s, %s ago", r.Name, r.Holder, since(r.AgeUs)))
		remedy = append(remedy, release(r.Name, r.Token, ""))
	}
	text := fmt.Sprintf("%s lapsed and never released or taken over, since the holder died or hangs: %s",
		counted(rows[0].Lapsed, "lease", "leases"), strings.Join(names, "; "))
	if rows[0].Lapsed > shown {
		text += "; and more"
	}
	v.note("gatepost.leases", text+". Whoever wants one takes it.", append([]string{"gatepost ls --all"}, remedy...)...)
	return nil
}

// longest is the longest TTL that a program can ask for.
const longest = 168 * time.Hour

// checkOverlong looks for leases that nobody else gets for longer than a TTL can be.
func checkOverlong(ctx context.Context, v *visit) error {
	rows, err := v.q.LeaseOverlong(ctx, doctordb.LeaseOverlongParams{MostUs: longest.Microseconds(), Most: shown})
	for i, r := range rows {
		text := fmt.Sprintf("It is %s until %s, and no TTL is longer than 168 h: the row was written by hand, or the server's clock was set back. "+
			"Nobody else gets it until then.", heldBy(r), cli.Clock(r.Until.Time))
		if more := r.Overlong - shown; more > 0 && i == shown-1 {
			text += fmt.Sprintf(" And so are %d more.", more)
		}
		v.weakens("lease "+r.Name, text, overlongRemedy(r))
	}
	return err
}

func heldBy(r doctordb.LeaseOverlongRow) string {
	if r.Held {
		return "held by " + r.Holder
	}
	return "reserved for " + r.Holder
}

func overlongRemedy(r doctordb.LeaseOverlongRow) string {
	if r.Held {
		return release(r.Name, r.Token, "")
	}
	return fmt.Sprintf("UPDATE gatepost.leases SET reserved_for = NULL, reserved_until = NULL WHERE name = %s AND slot = %d;", literal(r.Name), r.Slot)
}

// checkClockBack looks for leases from the future: tokens and times come from the
// server's clock.
func checkClockBack(ctx context.Context, v *visit) error {
	row, err := v.q.LeaseClock(ctx)
	if err != nil {
		return err
	}
	behind := -duration(min(row.TokenUs, row.RenewedUs))
	if behind > v.opts.Limits.Clock {
		v.weakens("the server's clock", fmt.Sprintf("It is %s behind the newest lease: it was set back, or the leases come from a server "+
			"that is ahead. Leases last longer than their TTL by that, and a name whose row was removed can get a lower token than before.",
			cli.Duration(behind)), "-- set the server's clock right, by chronyc makestep for example")
	}
	return nil
}

// checkClockDifference compares the clocks. Only the server's decides, so a difference
// harms nothing but the reading of logs.
func checkClockDifference(ctx context.Context, v *visit) error {
	now := v.opts.now
	if now == nil {
		now = time.Now
	}
	sent := now()
	server, err := v.q.ServerClock(ctx)
	if err != nil {
		return err
	}
	half := now().Sub(sent) / 2
	difference := server.Time.Sub(sent.Add(half))
	if difference.Abs()-half > v.opts.Limits.Clock {
		v.note("this machine's clock", fmt.Sprintf("It differs from the server's by %s. Only the server's decides about leases; "+
			"but the times in the logs of both don't fit together.", cli.Duration(difference)), "-- run NTP on both machines: timedatectl set-ntp true")
	}
	return nil
}

// counted is a number of things.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
