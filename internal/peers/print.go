package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

func print(w io.Writer, results []result, pairs, block int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "acquire + release, uncontended\tratio\tfrom\tto\tp50, us\trefuses a stale holder's write")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%d\t%s\n", r.name, median(r.ratios), slices.Min(r.ratios), slices.Max(r.ratios),
			median(r.p50).Microseconds(), r.refuses)
	}
	fmt.Fprintf(t, "medians of %d pairs of blocks of %d; the ratio is to the first line\n", pairs, block)
	return t.Flush()
}
