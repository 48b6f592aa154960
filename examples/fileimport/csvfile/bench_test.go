package csvfile_test

import (
	"bytes"
	"encoding/csv"
	"io"
	"os"
	"testing"
)

// inputs are a real file, and one that is all quotes and line ends.
func inputs(b *testing.B) map[string][]byte {
	b.Helper()
	real, err := os.ReadFile(birdstrikes)
	if err != nil {
		b.Fatal(err)
	}
	return map[string][]byte{
		"birdstrikes": real,
		"quoted":      bytes.Repeat([]byte("\"a \"\"quoted\"\" word\",\"two\nlines\",\"plain text, with a comma\"\n"), 20_000),
	}
}

func BenchmarkReader(b *testing.B) {
	for name, in := range inputs(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				r := newReader(b, bytes.NewReader(in), nil)
				for {
					if _, err := r.Next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkEncodingCSV is what to compare with: the standard library's reader, which gives the
// caller records to keep too, but no raw bytes, and checks no UTF-8.
func BenchmarkEncodingCSV(b *testing.B) {
	for name, in := range inputs(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				r := csv.NewReader(bytes.NewReader(in))
				for {
					if _, err := r.Read(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
