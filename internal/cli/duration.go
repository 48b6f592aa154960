package cli

import (
	"fmt"
	"strings"
	"time"
)

// Duration is d as people read it, without its sign: "0.4 s", "12 s", "3 min 20 s",
// "5 h 12 min", "3 d 4 h".
func Duration(d time.Duration) string {
	d = d.Abs()
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "min")
	default:
		return two(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

// two writes d in a unit and a smaller one.
func two(d, unit time.Duration, name string, small time.Duration, smallName string) string {
	rest := d % unit / small
	if rest == 0 {
		return fmt.Sprintf("%d %s", d/unit, name)
	}
	return fmt.Sprintf("%d %s %d %s", d/unit, name, rest, smallName)
}

// Coarse is Duration without the smaller unit, for where there is little room.
func Coarse(d time.Duration) string {
	words := strings.Fields(Duration(d))
	return words[0] + " " + words[1]
}

// Clock is a moment in the local time zone, with its offset.
func Clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }
