//go:build linux

package faults_test

import (
	"iter"
	"maps"
	"slices"
)

// counted are the operations of each kind: done, ended otherwise, and unknown.
func counted(h history) iter.Seq2[kind, [3]int] {
	counts := map[kind][3]int{}
	for _, o := range h {
		n := counts[o.Kind]
		switch {
		case o.Kind == hiccup || o.Result == ok:
			n[0]++
		case o.Return == 0:
			n[2]++
		default:
			n[1]++
		}
		counts[o.Kind] = n
	}
	return sorted(counts)
}

// faults counts what was made.
func (c *conductor) faults() iter.Seq2[string, int] {
	counts := map[string]int{}
	for _, e := range c.past {
		counts[e.Kind]++
	}
	return sorted(counts)
}

// sorted goes through a map in the order of its keys.
func sorted[K interface{ ~string }, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
