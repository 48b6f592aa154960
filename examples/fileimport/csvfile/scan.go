package csvfile

// mark is where a field's text stands in its record, without the quotes around it.
type mark struct {
	start, end int
	quoted     bool
	doubled    bool // holds doubled quotes
}

// outcome is what scan found.
type outcome int

const (
	whole  outcome = iota // a record
	more                  // the data ends too early to tell
	broken                // quotes that don't fit together; the flaw says where
)

// scanner finds the end and the fields of one record. The results are those of the last scan.
type scanner struct {
	special [256]bool // ends an unquoted field, or may not be in it
	delim   byte

	marks  []mark
	length int  // bytes of the record, without its line end
	size   int  // bytes of the record, with its line end
	breaks int  // line ends inside the record
	inside bool // after more: the data ends inside quotes
	flaw   *flaw
}

func newScanner(delim byte) *scanner {
	s := &scanner{delim: delim}
	for _, c := range []byte{delim, '"', '\n', '\r'} {
		s.special[c] = true
	}
	return s
}

// scan reads the record at the start of data, which is not empty. final says that the input
// ends where data ends; then the outcome is not more. What scan finds in data is also what
// it finds with more bytes behind them: the result doesn't depend on how the input was cut.
func (s *scanner) scan(data []byte, final bool) outcome {
	s.marks, s.breaks, s.inside, s.flaw = s.marks[:0], 0, false, nil
	for i := 0; ; i++ {
		var found outcome
		if i < len(data) && data[i] == '"' {
			i, found = s.quoted(data, i, final)
		} else {
			i, found = s.plain(data, i)
		}
		if found != whole {
			return found
		}
		if i == len(data) || data[i] != s.delim {
			return s.finish(data, i, final)
		}
	}
}

// plain reads the unquoted field at i and returns where it ends.
func (s *scanner) plain(data []byte, i int) (int, outcome) {
	j := i
	for j < len(data) && !s.special[data[j]] {
		j++
	}
	if j < len(data) && data[j] == '"' {
		return j, s.fail("a quote inside an unquoted field")
	}
	s.marks = append(s.marks, mark{start: i, end: j})
	return j, whole
}

// quoted reads the quoted field at i and returns where it ends, after the closing quote.
func (s *scanner) quoted(data []byte, i int, final bool) (int, outcome) {
	m := mark{start: i + 1, quoted: true}
	j, found := s.closing(data, &m, final)
	if found != whole {
		return j, found
	}
	if j < len(data) && !s.special[data[j]] {
		return j, s.fail("text after a closing quote")
	}
	s.breaks += lineEnds(data[m.start:m.end])
	s.marks = append(s.marks, m)
	return j, whole
}

// closing finds the closing quote of m, completes m, and returns the index after the quote.
func (s *scanner) closing(data []byte, m *mark, final bool) (int, outcome) {
	for j := m.start; ; j++ {
		for j < len(data) && data[j] != '"' {
			j++
		}
		if !final && j+1 >= len(data) {
			// The byte after a quote decides whether it closes or is doubled.
			s.inside = true
			return j, more
		}
		if j == len(data) {
			return j, s.fail("the quote at the start of the field is never closed")
		}
		m.end = j
		if j++; j == len(data) || data[j] != '"' {
			return j, whole
		}
		m.doubled = true
	}
}

// finish ends the record at the line end, or the end of the data, at i.
func (s *scanner) finish(data []byte, i int, final bool) outcome {
	n, ok := lineEnd(data[i:], final)
	if !ok {
		return more
	}
	s.length, s.size = i, i+n
	return whole
}

// fail notes what is wrong with the field being read.
func (s *scanner) fail(reason string) outcome {
	s.flaw = &flaw{column: s.column(), reason: reason}
	return broken
}

// column is the 1-based number of the field being read.
func (s *scanner) column() int {
	return len(s.marks) + 1
}
