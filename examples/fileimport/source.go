package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

// maxColumns is PostgreSQL's limit of a table, less the key's.
const maxColumns = 1590

// source is a CSV file that was read through once: it is known to be readable,
// how many records it has, and what its content hashes to. Nothing is written to
// a database before that.
type source struct {
	path    string
	opts    importOptions
	file    *os.File
	size    int64
	changed time.Time
	sum     [32]byte
	columns []string
	notes   []string
	counts  csvfile.Counts // of the whole file
}

// openSource reads the file through. The errors name the file and the line. It is
// looked at before it is opened: opening a FIFO waits for a writer.
func openSource(ctx context.Context, path string, opts importOptions) (*source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err // names the file and the reason
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: it has to be read twice", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, opts: opts, file: file}
	if err := s.scan(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w while %s was read; nothing was imported", context.Cause(ctx), path)
		}
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

func (s *source) close() { _ = s.file.Close() }

// empty says that there isn't even a header.
func (s *source) empty() bool { return s.counts.Header == 0 }

func (s *source) scan(ctx context.Context) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.size, s.changed = info.Size(), info.ModTime()

	p, err := s.newPass(ctx)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	s.columns, s.notes = p.columns, p.notes
	var rejected int64
	for {
		it, err := p.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if it.reason == "" {
			continue
		}
		if rejected++; rejected > s.opts.maxRejects {
			return s.tooManyRejects(it, rejected)
		}
	}
	s.counts = p.reader.Counts()
	s.sum = p.sum()
	return nil
}

func (s *source) tooManyRejects(it item, rejected int64) error {
	err := fmt.Errorf("%s: line %d: %s", s.path, it.line, it.reason)
	if s.opts.maxRejects > 0 {
		return fmt.Errorf("%w (the %d. bad record; --max-rejects is %d; nothing was imported)", err, rejected, s.opts.maxRejects)
	}
	return fmt.Errorf("%w (nothing was imported; --max-rejects N sets up to N bad records aside)", err)
}

// unchanged fails when the file is no longer the one that was scanned.
func (s *source) unchanged() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != s.size || !info.ModTime().Equal(s.changed) {
		return s.changedError()
	}
	return nil
}

func (s *source) changedError() error {
	return fmt.Errorf("%s was changed while it was being imported; start again when it is complete", s.path)
}

// pass reads the file's records from the beginning.
type pass struct {
	source  *source
	reader  *csvfile.Reader
	keyer   *keyer
	hash    hash.Hash
	columns []string
	notes   []string
}

// newPass reads the header; io.EOF means that the file has none.
func (s *source) newPass(ctx context.Context) (*pass, error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	p := &pass{source: s, hash: sha256.New()}
	reader, err := csvfile.NewReader(io.TeeReader(readUntil(ctx, s.file), p.hash), &csvfile.Options{Delimiter: s.opts.delimiter})
	if err != nil {
		return nil, usageError(err)
	}
	p.reader = reader
	header, err := reader.Next()
	if err != nil {
		return nil, p.failed(err)
	}
	if len(header.Fields) > maxColumns {
		return nil, fmt.Errorf("%s: the header has %d columns, a table can have %d", s.path, len(header.Fields), maxColumns)
	}
	if err := s.checkOneColumn(header); err != nil {
		return nil, err
	}
	p.columns, p.notes = csvfile.Columns(header.Fields)
	if p.keyer, err = newKeyer(s.opts.key, p.columns); err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", s.path, err))
	}
	return p, nil
}

// columnName is what the only column of a file is called, if the file is CSV and
// not prose, a program or markup.
var columnName = regexp.MustCompile(`^\s*[\pL\pN_][\pL\pN_.%-]*( [\pL\pN_.%-]+){0,3}\s*$`)

// readUntil fails reads when ctx has ended: a file can be long.
func readUntil(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return r.Read(p)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// checkOneColumn refuses a header that is one column because it is split at
// something else, or because the file isn't CSV at all: any text is CSV of one
// column.
func (s *source) checkOneColumn(header csvfile.Record) error {
	if len(header.Fields) > 1 || header.Fields[0].Quoted || s.opts.oneColumn {
		return nil
	}
	for _, other := range []byte(",;\t|") {
		if bytes.IndexByte(header.Raw, other) >= 0 {
			return fmt.Errorf("%s: the header is one column with %q in it; is that the delimiter? Use --delimiter", s.path, other)
		}
	}
	if !columnName.Match(header.Raw) {
		return fmt.Errorf("%s doesn't look like CSV: its first line is one column and no column's name; if it is one, use --one-column", s.path)
	}
	return nil
}

// item is one record of the file.
type item struct {
	line    int64
	record  csvfile.Record // of a good one
	key     []any          // its values of the key's extra columns, without the file's id
	verdict verdict
	reason  string // why it is bad, else empty
	raw     []byte // of a bad one
}

// next returns io.EOF after the last record. Other errors end the pass.
func (p *pass) next() (item, error) {
	record, err := p.reader.Next()
	if bad, ok := errors.AsType[*csvfile.RecordError](err); ok {
		reason := bad.Reason
		if bad.Column > 0 {
			reason = fmt.Sprintf("field %d: %s", bad.Column, reason)
		}
		return item{line: bad.Line, reason: reason, raw: bad.Raw}, nil
	}
	if err != nil {
		return item{}, p.failed(err)
	}
	it := item{line: record.Line, record: record}
	it.verdict, it.key, it.reason = p.keyer.next(record)
	switch {
	case it.reason != "":
		it.raw = record.Raw
	case it.verdict == changed && !p.source.opts.skipChanged:
		return item{}, fmt.Errorf("%s: line %d: its key came before in the file with other content; --on-change skip keeps the first", p.source.path, it.line)
	}
	return it, nil
}

func (p *pass) failed(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("%s: %w", p.source.path, err)
}

func (p *pass) sum() (sum [32]byte) {
	p.hash.Sum(sum[:0])
	return sum
}
