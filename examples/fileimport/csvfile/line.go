package csvfile

import "bytes"

// lineEnd is the length of the line end at the start of data: 2 for CRLF, 1 for LF and a lone
// CR, 0 for other bytes and for the end of the input. It is not ok when the data ends too
// early to tell.
func lineEnd(data []byte, final bool) (n int, ok bool) {
	switch {
	case len(data) == 0:
		return 0, final
	case data[0] == '\n':
		return 1, true
	case data[0] != '\r':
		return 0, true
	case len(data) == 1:
		return 1, final
	case data[1] == '\n':
		return 2, true
	}
	return 1, true
}

// nextLineEnd is the index of the first line end of data, or its length if it has none.
func nextLineEnd(data []byte) int {
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
		return i
	}
	return len(data)
}

// lineEnds counts the line ends in the text of a field.
func lineEnds(text []byte) int {
	n := bytes.Count(text, []byte{'\n'})
	if bytes.IndexByte(text, '\r') < 0 {
		return n
	}
	return n + bytes.Count(text, []byte{'\r'}) - bytes.Count(text, []byte("\r\n"))
}
