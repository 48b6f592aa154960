package csvfile

// Counts says what a Reader has passed so far. At every moment
//
//	Lines = Header + Blank + Continuation + Records
//
// holds, and after io.EOF Lines is the number of lines of the file.
type Counts struct {
	// Lines are the physical lines. A last line without a line end is a line.
	Lines int64

	// Header is 1 after the header, else 0.
	Header int64

	// Blank are the lines outside of records with nothing on them.
	Blank int64

	// Continuation are the lines of a record, or of the header, after its first.
	Continuation int64

	// Records are the records after the header, bad ones included.
	Records int64

	// Bad are the records that Next returned as a RecordError.
	Bad int64
}

// record counts a record, or the header, that holds n line ends.
func (c *Counts) record(n int) {
	c.Lines += 1 + int64(n)
	c.Continuation += int64(n)
	if c.Header == 0 {
		c.Header = 1
		return
	}
	c.Records++
}

// blank counts a blank line.
func (c *Counts) blank() {
	c.Lines++
	c.Blank++
}
