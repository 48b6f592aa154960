package migrations

import (
	"strings"
)

// SQL returns the whole schema as plain SQL, for people who apply migrations
// with another tool: CREATE SCHEMA and the Up part of each migration in order.
// It writes no version table: a database made with it must be kept up to date
// with it too, by the parts that are new.
func SQL() (string, error) {
	var b strings.Builder
	b.WriteString("CREATE SCHEMA IF NOT EXISTS gatepost;\n")
	for _, m := range sources() {
		file, err := FS.ReadFile(m.Name)
		if err != nil {
			return "", err
		}
		b.WriteString("\n-- " + m.Name + "\n")
		b.WriteString(upPart(string(file)))
	}
	return b.String(), nil
}

// upPart keeps the lines between the Up and the Down annotation and drops the
// annotations themselves.
func upPart(file string) string {
	_, up, _ := strings.Cut(file, "-- +goose Up\n")
	up, _, _ = strings.Cut(up, "-- +goose Down")
	var b strings.Builder
	for line := range strings.Lines(up) {
		if !strings.HasPrefix(line, "-- +goose") {
			b.WriteString(line)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
