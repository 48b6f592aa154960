package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgconn"
)

// Explain makes one line of an error, with what to do about it where that is known. It
// has no names of packages in it, and nothing that a terminal would act on.
func Explain(err error) string { return Printable(oneLine(explain(err))) }

func explain(err error) string {
	if schema, ok := errors.AsType[*SchemaError](err); ok {
		return schema.Error()
	}
	if notMigrated(err) {
		return notMigratedText
	}
	if failed, ok := asConnectionError(err); ok {
		return failed.Error()
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return plain(err.Error()) + remedy(pgErr)
	}
	if held, ok := err.(*pglock.HeldError); ok { //nolint:errorlint // what wraps it says more
		return ExplainHeld(held) + "; all about it: gatepost show " + ShellWords(held.Name)
	}
	if broken(err) {
		return "the connection to the database broke: " + innermost(err)
	}
	return plain(err.Error())
}

// broken says that a connection that was there ended, and not with a word of the server's.
func broken(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	return network || errors.Is(err, pgconn.ErrConnClosed) || (ended && strings.Contains(err.Error(), "receive message")) // of pgconn, not of a file
}

// ExplainHeld says who has a lease, since when and until when.
func ExplainHeld(e *pglock.HeldError) string {
	switch {
	case e.Token == 0:
		return fmt.Sprintf("lease %q is being taken by another at this moment", e.Name)
	case e.Fenced:
		return fmt.Sprintf("lease %q is free, but a transaction fenced by its last token %d is still open", e.Name, e.Token)
	}
	now := e.ExpiresAt.Add(-e.RetryAfter) // by the database's clock
	return fmt.Sprintf("lease %q is held by %s (token %d) since %s, for %s, and expires in %s unless renewed",
		e.Name, Printable(e.Holder), e.Token, e.Since.Local().Format(time.DateTime), Duration(now.Sub(e.Since)), Duration(e.RetryAfter))
}

// ended are the ways to say that a context did.
var ended = strings.NewReplacer(
	"context canceled", "interrupted", "interrupt signal received", "interrupted", "terminated signal received", "interrupted",
	"context deadline exceeded", "no answer in time",
)

// packages begin the texts of errors in Go, at the front or behind another text.
var packages = regexp.MustCompile(`(^|: |\(|; )(?:pglock|idem|idemhttp|migrations|pgtemp): `)

// plain takes the names of packages out of a text, but for what it quotes, and says for
// people how a context ended.
func plain(text string) string {
	var b strings.Builder
	text = ended.Replace(text)
	for text != "" {
		quoted := quote.FindStringIndex(text)
		if quoted == nil {
			b.WriteString(packages.ReplaceAllString(text, "$1"))
			break
		}
		b.WriteString(packages.ReplaceAllString(text[:quoted[0]], "$1"))
		b.WriteString(text[quoted[0]:quoted[1]])
		text = text[quoted[1]:]
	}
	return b.String()
}

// quote is a text in quotation marks, as %q makes it.
var quote = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// notMigrated says that Gatepost's schema, or something in it, is missing.
func notMigrated(err error) bool {
	if errors.Is(err, pglock.ErrNotMigrated) || errors.Is(err, idem.ErrNotMigrated) {
		return true
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.Contains(pgErr.Message, "gatepost") {
		return false
	}
	switch pgErr.Code {
	case "3F000", "42P01", "42703", "42883": // no such schema, table, column, function
		return true
	}
	return false
}

func remedy(err *pgconn.PgError) string {
	switch err.Code {
	case "42501": // insufficient_privilege
		if strings.Contains(err.Message, "gatepost") && !strings.HasPrefix(err.Message, "permission denied for database ") {
			return "; the schema's owner gives a role what it needs: gatepost migrate grants ROLE | psql"
		}
		return "; ask the database's owner for that right, or use another role"
	case "55P03": // lock_not_available
		return "; another session has held a lock on it for too long, perhaps of a program that was stopped: end it, and start again"
	case "25006", "0A000": // read_only_sql_transaction, feature_not_supported
		if err.Code == "0A000" && !strings.Contains(err.Message, "recovery") {
			break
		}
		return "; this server is a standby, or read-only: connect to the primary, with target_session_attrs=read-write perhaps"
	}
	if err.Hint != "" {
		return "; " + err.Hint
	}
	return ""
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
