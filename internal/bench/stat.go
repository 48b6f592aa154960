package bench

import (
	"cmp"
	"slices"
	"time"
)

// median of at least one value; of an even number the mean of the two in the middle.
func median[T cmp.Ordered](values []T, mean func(a, b T) T) T {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return mean(sorted[half-1], sorted[half])
}

// p50 is the median of durations.
func p50(durations []time.Duration) time.Duration {
	return median(durations, func(a, b time.Duration) time.Duration { return (a + b) / 2 })
}

func medianOf(values []float64) float64 {
	return median(values, func(a, b float64) float64 { return (a + b) / 2 })
}

// ratioOf sums the pairs up.
func ratioOf(ours, plain []time.Duration) *Ratio {
	var ratios, oursUS, plainUS []float64
	for i := range ours {
		ratios = append(ratios, float64(ours[i])/float64(plain[i]))
		oursUS = append(oursUS, us(ours[i]))
		plainUS = append(plainUS, us(plain[i]))
	}
	return &Ratio{
		Median: medianOf(ratios), Least: slices.Min(ratios), Most: slices.Max(ratios),
		OursUS: medianOf(oursUS), PlainUS: medianOf(plainUS),
	}
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
