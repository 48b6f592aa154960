package idem

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// copyPlaces are what stands around a table's name where PostgreSQL says at which line of a
// COPY it is: in most languages, in Japanese, and in Korean.
var copyPlaces = [][2]string{{"COPY ", ", "}, {"", "のCOPY、"}, {"", " 복사, "}}

// placed is err with the row of the input in front, and in Where, where it says a COPY's
// line, which is counted from the rows before that one, and with the table that the rows
// were meant for.
func placed(err error, copied, meant pgx.Identifier, before int64) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	for _, around := range copyPlaces {
		outer, rest, ok := strings.Cut(pgErr.Where, around[0]+copied[len(copied)-1]+around[1])
		to, line, digits := number(rest)
		if !ok || digits == 0 {
			continue
		}
		row := strconv.FormatInt(before+line, 10)
		moved := *pgErr
		moved.Where = outer + "COPY " + meant[len(meant)-1] + ", " + rest[:to-digits] + row + rest[to:]
		return fmt.Errorf("row %s: %w", row, &moved)
	}
	return err
}

// number is the first one in a place, which is behind "line" in some languages, and before
// it in others: where it ends, what it is, and how many digits it has.
func number(place string) (to int, n int64, digits int) {
	from := strings.IndexFunc(place, unicode.IsDigit)
	if from < 0 {
		return 0, 0, 0
	}
	to = len(place)
	if behind := strings.IndexFunc(place[from:], func(r rune) bool { return !unicode.IsDigit(r) }); behind >= 0 {
		to = from + behind
	}
	n, err := strconv.ParseInt(place[from:to], 10, 64)
	if err != nil {
		return 0, 0, 0
	}
	return to, n, to - from
}
