package idemhttp_test

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"testing"

	"github.com/gatepost/gatepost/idem/idemhttp"
)

func TestParseIfMatch_ComparesStrongly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  []int64 // of 0, 6, 7, 8 and the largest, those that match
	}{
		{[]string{`"7"`}, []int64{7}},
		{[]string{`W/"7"`}, nil},
		{[]string{`W/"7", "8"`}, []int64{8}},
		{[]string{`"6","8"`}, []int64{6, 8}},
		{[]string{` "6" ,, ` + "\t" + `"8" , `}, []int64{6, 8}},
		{[]string{`"6"`, `"8"`}, []int64{6, 8}},
		{[]string{`"9223372036854775807"`}, []int64{math.MaxInt64}},
		{[]string{`"07"`, `"+7"`, `"7,8"`, `"abc"`, `""`, `"9223372036854775808"`, `"\7"`}, nil},
		{[]string{`*`}, []int64{0, 6, 7, 8, math.MaxInt64}},
		{[]string{" *\t"}, []int64{0, 6, 7, 8, math.MaxInt64}},
	} {
		m, err := idemhttp.ParseIfMatch(http.Header{"If-Match": c.lines})
		if err != nil {
			t.Errorf("%q: %v", c.lines, err)
		}
		var got []int64
		for _, version := range []int64{0, 6, 7, 8, math.MaxInt64} {
			if m.Matches(version) {
				got = append(got, version)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q matches %d, want %d", c.lines, got, c.want)
		}
	}
}

func TestParseIfMatch_TellsMissingFromMalformed(t *testing.T) {
	t.Parallel()
	m, err := idemhttp.ParseIfMatch(http.Header{"If-None-Match": {`"7"`}})
	if !errors.Is(err, idemhttp.ErrPreconditionRequired) || m.Matches(7) {
		t.Errorf("error is %v, and version 7 allowed: %t, want ErrPreconditionRequired, and none allowed", err, m.Matches(7))
	}
	for _, line := range []string{"", " ", ",", "7", `"7`, `7"`, `w/"7"`, `W/7`, `W/`, `"7" "8"`, `"7"8"`, `*, "7"`, `"7", *`, "\"\x7f\"", `"7 8"`} {
		if _, err := idemhttp.ParseIfMatch(http.Header{"If-Match": {line}}); !errors.Is(err, idemhttp.ErrInvalidPrecondition) {
			t.Errorf("%q: error is %v, want ErrInvalidPrecondition", line, err)
		}
	}
}

func TestETag_IsStrongAndComesBack(t *testing.T) {
	t.Parallel()
	for _, version := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		tag := idemhttp.ETag(version)
		m, err := idemhttp.ParseIfMatch(http.Header{"If-Match": {tag}})
		if err != nil || !m.Matches(version) || m.Matches(version^1) {
			t.Errorf("%s came back as %+v, %v", tag, m, err)
		}
	}
	if got := idemhttp.ETag(7); got != `"7"` {
		t.Errorf("ETag(7) = %s", got)
	}
}
