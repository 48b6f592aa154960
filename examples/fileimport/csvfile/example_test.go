package csvfile_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

// A caller that collects bad records goes on after a RecordError; one that aborts returns it.
func ExampleReader() {
	in := "name,note\r\nann,\r\nbob,\"\"\r\neve,\"left open\r\nkim,\"two\r\nlines\"\r\n"
	r, err := csvfile.NewReader(strings.NewReader(in), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		rec, err := r.Next()
		var bad *csvfile.RecordError
		switch {
		case err == nil:
			fmt.Printf("line %d: %q\n", rec.Line, rec.Raw)
			continue
		case errors.As(err, &bad):
			fmt.Println("rejected:", bad)
			continue
		case !errors.Is(err, io.EOF):
			fmt.Println(err)
		}
		break
	}
	fmt.Printf("%+v\n", r.Counts())
	// Output:
	// line 1: "name,note"
	// line 2: "ann,"
	// line 3: "bob,\"\""
	// rejected: line 4, field 2: text after a closing quote: "eve,\"left open"
	// line 5: "kim,\"two\r\nlines\""
	// {Lines:6 Header:1 Blank:0 Continuation:1 Records:4 Bad:1}
}
