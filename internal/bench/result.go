package bench

import "time"

// Result is what a row came to.
type Result struct {
	Row     string  `json:"row"`
	What    string  `json:"what"`
	Against string  `json:"against,omitempty"`
	Bar     float64 `json:"bar,omitempty"`   // of the ratio
	Known   float64 `json:"known,omitempty"` // of a ratio that is above its bar so far
	Ratio   *Ratio  `json:"ratio,omitempty"` // nil where nothing is compared
	Counts  []Count `json:"counts,omitempty"`
}

// Ratio compares two medians of durations.
type Ratio struct {
	Median  float64 `json:"median"` // over the pairs
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	OursUS  float64 `json:"ours_p50_us"` // the median pair's, in microseconds
	PlainUS float64 `json:"plain_p50_us"`
}

// Ours is how long ours took, the median of the blocks' medians.
func (r Ratio) Ours() time.Duration { return microseconds(r.OursUS) }

// Plain is how long the plain statements took.
func (r Ratio) Plain() time.Duration { return microseconds(r.PlainUS) }

func microseconds(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// Count is work that one operation does.
type Count struct {
	What string  `json:"what"` // statements, round trips, xids, WAL bytes, fsyncs, buffers
	Each float64 `json:"each"`
	// Plain is the same of what it is compared with; absent where there is none.
	Plain *float64 `json:"plain,omitempty"`
	// Bar is what Each should not exceed; absent for none.
	Bar *float64 `json:"bar,omitempty"`
}

// Misses says what exceeds its bar, and what is known of it, by more than a factor:
// "ratio", or what is counted.
func (r Result) Misses(factor float64) (what []string) {
	if r.Ratio != nil && r.Bar > 0 && r.Ratio.Median > max(r.Bar, r.Known)*factor {
		what = append(what, "ratio")
	}
	for _, c := range r.Counts {
		if c.Bar != nil && c.Each > *c.Bar*factor {
			what = append(what, c.What)
		}
	}
	return what
}
