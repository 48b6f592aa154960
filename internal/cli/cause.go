package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// cause is why there is no connection.
type cause struct{ what, remedy string }

// cause finds the most telling one of those that pgx met, which may be several: an
// attempt for each address, and with sslmode=prefer one without TLS.
func (e *ConnectionError) cause() cause {
	if said, ok := errors.AsType[*pgconn.PgError](e.Err); ok {
		return e.refused(said)
	}
	if unknown, ok := errors.AsType[*net.DNSError](e.Err); ok && unknown.IsNotFound {
		return cause{fmt.Sprintf("no host is called %q", unknown.Name), "correct " + e.Source.place("host")}
	}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](e.Err); ok {
		return cause{fmt.Sprintf("the certificate of the server at %s is not trusted: %s", e.addresses(), oneLine(untrusted.Err.Error())), "correct sslrootcert, or sslmode"}
	}
	switch {
	case errors.Is(e.Err, context.Canceled):
		return cause{"interrupted", ""}
	case errors.Is(e.Err, syscall.ECONNREFUSED), errors.Is(e.Err, fs.ErrNotExist):
		return e.nobodyThere()
	case errors.Is(e.Err, fs.ErrPermission):
		return cause{fmt.Sprintf("this user may not open %s", e.addresses()), "use another one, or correct " + e.Source.place("host")}
	case pgconn.Timeout(e.Err), errors.Is(e.Err, context.DeadlineExceeded):
		return cause{fmt.Sprintf("%s doesn't answer", e.addresses()), "look for a firewall or a server that hangs, or correct " + e.Source.place("host", "port")}
	case errors.Is(e.Err, io.EOF), errors.Is(e.Err, io.ErrUnexpectedEOF), errors.Is(e.Err, syscall.ECONNRESET):
		return cause{fmt.Sprintf("%s closed the connection", e.addresses()), "the server's log may say why; is it PostgreSQL that listens there?"}
	case strings.HasSuffix(innermost(e.Err), "server refused TLS connection"):
		return cause{fmt.Sprintf("the server at %s has no TLS, and sslmode asks for it", e.addresses()), "turn ssl on there, or use sslmode=prefer"}
	default:
		return cause{fmt.Sprintf("%s: %s", e.addresses(), innermost(e.Err)), ""}
	}
}

// nobodyThere is what to do where nothing listens.
func (e *ConnectionError) nobodyThere() cause {
	what := "nothing listens at " + e.addresses()
	switch {
	case e.Source.Name == "":
		return cause{what, "start PostgreSQL, or say where it is: --database-url, DATABASE_URL or PGHOST"}
	case strings.HasPrefix(e.Config.Host, "/"): // the port is a part of the socket's name
		return cause{what, "start PostgreSQL, or correct " + e.Source.place("host", "port")}
	default:
		return cause{what, "start PostgreSQL there, or correct " + e.Source.place("host", "port")}
	}
}

// refused is what the server said.
func (e *ConnectionError) refused(said *pgconn.PgError) cause {
	at := " at " + e.addresses()
	switch said.Code {
	case "28P01": // invalid_password
		if e.Config.Password == "" {
			return cause{fmt.Sprintf("role %q needs a password%s", e.Config.User, at), "give it in PGPASSWORD or ~/.pgpass"}
		}
		return cause{fmt.Sprintf("wrong password for role %q%s", e.Config.User, at), "correct " + e.Source.place("password")}
	case "28000": // invalid_authorization_specification
		return cause{said.Message + at, "correct " + e.Source.place("user") + ", or pg_hba.conf of the server"}
	case "3D000": // invalid_catalog_name
		return e.noDatabase(at)
	case "08P01": // protocol_violation: PgBouncer knows no other
		return e.refusedByPooler(said, at)
	case "42501": // insufficient_privilege
		return cause{said.Message + at, fmt.Sprintf("its owner can grant CONNECT to role %q", e.Config.User)}
	case "53300": // too_many_connections
		return cause{said.Message + at, "end some that are idle, or raise max_connections"}
	case "57P03", "57P01": // cannot_connect_now, admin_shutdown
		return cause{said.Message + at, "try again in a moment"}
	default:
		return cause{fmt.Sprintf("%s (SQLSTATE %s)%s", said.Message, said.Code, at), said.Hint}
	}
}

func (e *ConnectionError) noDatabase(at string) cause {
	return cause{fmt.Sprintf("there is no database %q%s", e.Config.Database, at), "create it, or correct " + e.Source.place("dbname")}
}

// refusedByPooler is what PgBouncer said, in its own words or in the server's.
func (e *ConnectionError) refusedByPooler(said *pgconn.PgError, at string) cause {
	switch {
	case strings.HasPrefix(said.Message, "database ") && strings.HasSuffix(said.Message, " does not exist"):
		return e.noDatabase(at)
	case strings.HasPrefix(said.Message, "unsupported startup parameter"):
		return cause{said.Message + at, "a pooler is there, which takes no such setting: leave it out of " + cmp.Or(e.Source.Name, "PGOPTIONS")}
	default:
		return cause{fmt.Sprintf("%s (SQLSTATE %s)%s", said.Message, said.Code, at), said.Hint}
	}
}

// innermost is the text of the last error in the tree that has none below it.
func innermost(err error) string {
	for err != nil {
		var next error
		switch e := err.(type) { //nolint:errorlint // it goes down the tree
		case interface{ Unwrap() error }:
			next = e.Unwrap()
		case interface{ Unwrap() []error }:
			if all := e.Unwrap(); len(all) > 0 {
				next = all[len(all)-1]
			}
		}
		if next == nil {
			return oneLine(err.Error())
		}
		err = next
	}
	return ""
}
