package cli

import (
	"slices"
	"strings"
)

// Near are those of the words that somebody may have meant who typed another: the same
// but for case, or for a few characters, the nearest first and three at most.
func Near(typed string, words []string) []string {
	most := min(3, max(1, len([]rune(typed))/4))
	type near struct {
		word     string
		distance int
	}
	var found []near
	for _, word := range words {
		if d := distance(strings.ToLower(typed), strings.ToLower(word)); d <= most {
			found = append(found, near{word, d})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int { return a.distance - b.distance })
	var best []string
	for _, n := range found[:min(3, len(found))] {
		best = append(best, n.word)
	}
	return best
}

// DidYouMean asks for the words that are near, printably; it is empty when none is.
func DidYouMean(typed string, words []string) string {
	near := Near(typed, words)
	if len(near) == 0 {
		return ""
	}
	for i := range near {
		near[i] = Printable(near[i])
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// distance is how many characters have to be put in, taken out or changed, or change
// places with their neighbour, to make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := [3][]int{make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	last, before, now := rows[1], rows[0], rows[2] // of x[:i-2], x[:i-1], x[:i]
	for i := 1; i <= len(x); i++ {
		now[0] = i
		for j := 1; j <= len(y); j++ {
			changed := 1
			if x[i-1] == y[j-1] {
				changed = 0
			}
			now[j] = min(before[j]+1, now[j-1]+1, before[j-1]+changed)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				now[j] = min(now[j], last[j-2]+1)
			}
		}
		last, before, now = before, now, last
	}
	return before[len(y)]
}
