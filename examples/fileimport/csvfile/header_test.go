package csvfile_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

func TestColumns(t *testing.T) {
	t.Parallel()
	x62, x63 := strings.Repeat("x", 62), strings.Repeat("x", 63)
	for _, tt := range []struct {
		name   string
		header []string
		names  []string
		notes  []string
	}{
		{name: "no columns", names: []string{}},
		{
			name:   "good names are kept",
			header: []string{"Cost Total $", "Cost", "cost", `a"b`, "naïve"},
			names:  []string{"Cost Total $", "Cost", "cost", `a"b`, "naïve"},
		},
		{
			name:   "spaces around",
			header: []string{" a", "b\t", "c\u00a0"},
			names:  []string{"a", "b", "c"},
			notes: []string{
				`column 1 " a" has spaces around its name: stored as "a"`,
				`column 2 "b\t" has spaces around its name: stored as "b"`,
				`column 3 "c\u00a0" has spaces around its name: stored as "c"`,
			},
		},
		{
			name:   "no name",
			header: []string{"a", "", " ", "column_2"},
			names:  []string{"a", "column_2_2", "column_3", "column_2"},
			notes: []string{
				"column 2 has no name: stored as column_2_2",
				"column 3 has no name: stored as column_3",
			},
		},
		{
			name:   "duplicates leave the names of others alone",
			header: []string{"a", "a", "a_2", "a", " a"},
			names:  []string{"a", "a_3", "a_2", "a_4", "a_5"},
			notes: []string{
				`column 2 "a" has the name of column 1: stored as "a_3"`,
				`column 4 "a" has the name of column 1: stored as "a_4"`,
				`column 5 " a" has the name of column 1: stored as "a_5"`,
			},
		},
		{
			name:   "63 bytes stay, and a duplicate of them is cut for its number",
			header: []string{x63, x63},
			names:  []string{x63, x63[:61] + "_2"},
			notes:  []string{`column 2 "` + x63[:60] + `"... has the name of column 1: stored as "` + x63[:61] + `_2"`},
		},
		{
			name:   "long names are cut between characters, and behind names that fit",
			header: []string{x62 + "é", x63 + "y", x63 + "z", x63, x62},
			names:  []string{x61(x62, "_2"), x61(x62, "_3"), x61(x62, "_4"), x63, x62},
			notes: []string{
				`column 1 "` + x62[:60] + `"... has a name over 63 bytes: stored as "` + x62[:61] + `_2"`,
				`column 2 "` + x62[:60] + `"... has a name over 63 bytes: stored as "` + x62[:61] + `_3"`,
				`column 3 "` + x62[:60] + `"... has a name over 63 bytes: stored as "` + x62[:61] + `_4"`,
			},
		},
		{
			name:   "a cut doesn't leave a space at the end",
			header: []string{x62 + " and more"},
			names:  []string{x62},
			notes:  []string{`column 1 "` + x62[:60] + `"... has a name over 63 bytes: stored as "` + x62 + `"`},
		},
		{
			name:   "reserved names",
			header: []string{"ctid", "xmin", "CTID", "oid", "gatepost_line", "gatepost_", "gatepost", "ctid_2"},
			names:  []string{"ctid_3", "xmin_2", "CTID", "oid", "gatepost_line_2", "gatepost__2", "gatepost", "ctid_2"},
			notes: []string{
				`column 1 "ctid" has a reserved name: stored as "ctid_3"`,
				`column 2 "xmin" has a reserved name: stored as "xmin_2"`,
				`column 5 "gatepost_line" has a reserved name: stored as "gatepost_line_2"`,
				`column 6 "gatepost_" has a reserved name: stored as "gatepost__2"`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			names, notes := csvfile.Columns(header(tt.header))
			if !reflect.DeepEqual(names, tt.names) {
				t.Errorf("names are\n%q, want\n%q", names, tt.names)
			}
			if !reflect.DeepEqual(notes, tt.notes) {
				t.Errorf("notes are\n%q, want\n%q", notes, tt.notes)
			}
		})
	}
}

// x61 is 61 of the x and a suffix.
func x61(x, suffix string) string { return x[:61] + suffix }

func header(names []string) []csvfile.Field {
	var fields []csvfile.Field
	for _, n := range names {
		fields = append(fields, csvfile.Field{Value: n})
	}
	return fields
}

// Columns holds its contract for headers made of pieces that get in each other's way.
func TestColumns_AreUniqueAndFit(t *testing.T) {
	t.Parallel()
	pieces := []string{"", "a", "_2", "_3", "_", "column_", "1", "2", "é", "日本", " ", "ctid", "gatepost_", "\u00a0", strings.Repeat("x", 30), strings.Repeat("語", 20)}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		fields := make([]csvfile.Field, rnd.IntN(40))
		for i := range fields {
			for range rnd.IntN(5) {
				fields[i].Value += pieces[rnd.IntN(len(pieces))]
			}
		}
		checkColumns(t, fields)
	}
}

func TestColumns_ManyEqualNames(t *testing.T) {
	t.Parallel()
	checkColumns(t, header(slice("a", 20_000)))
	checkColumns(t, header(slice(strings.Repeat("語", 100), 20_000)))
}

func slice(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = name
	}
	return names
}

func FuzzColumns(f *testing.F) {
	f.Add("a,a,a_2,, b ,ctid,gatepost_x")
	f.Add(strings.Repeat("\x80", 70) + "," + strings.Repeat("é", 40))
	f.Fuzz(func(t *testing.T, in string) {
		checkColumns(t, header(strings.Split(in, ",")))
	})
}

func checkColumns(t *testing.T, fields []csvfile.Field) {
	t.Helper()
	names, notes := csvfile.Columns(fields)
	seen, changed := map[string]bool{}, 0
	for i, name := range names {
		was := fields[i].Value
		switch {
		case len(name) < 1 || len(name) > 63:
			t.Errorf("%q became %q of %d bytes", was, name, len(name))
		case utf8.ValidString(was) && !utf8.ValidString(name):
			t.Errorf("%q was torn: %q", was, name)
		case seen[name]:
			t.Errorf("%q twice in %+v", name, fields)
		case strings.TrimFunc(name, unicode.IsSpace) != name:
			t.Errorf("%q has spaces around", name)
		case name == "ctid" || strings.HasPrefix(name, "gatepost_") && name == was:
			t.Errorf("%q is reserved", name)
		}
		seen[name] = true
		if name != was {
			changed++
		}
	}
	if len(names) != len(fields) || len(notes) != changed {
		t.Errorf("%d names of %d, %d notes for %d changes: %q", len(names), len(fields), len(notes), changed, notes)
	}
}

func ExampleColumns() {
	names, notes := csvfile.Columns([]csvfile.Field{{Value: "id"}, {Value: "amount"}, {}, {Value: "amount"}})
	fmt.Printf("%q\n", names)
	for _, n := range notes {
		fmt.Println(n)
	}
	// Output:
	// ["id" "amount" "column_3" "amount_2"]
	// column 3 has no name: stored as column_3
	// column 4 "amount" has the name of column 2: stored as "amount_2"
}
