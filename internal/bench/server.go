package bench

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Server is what was measured on.
type Server struct {
	Version  string            `json:"version"`
	Settings map[string]string `json:"settings"` // what makes commits dear or cheap
	// Weak lists the settings with which a commit that was answered can be lost: the
	// ratios then compare something else than commits.
	Weak []string `json:"weak,omitempty"`
	// Source is where a temporary server comes from; empty for the user's own.
	Source string `json:"temporary,omitempty"`
}

// Durable says whether what is committed survives a crash of the server's machine.
func (s Server) Durable() bool { return len(s.Weak) == 0 }

// settings that matter, in the order in which they are shown.
var settings = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sync_method", "commit_delay",
	"synchronous_standby_names", "data_checksums", "shared_buffers", "max_wal_size",
	"default_transaction_isolation", "autovacuum",
}

// Settings are the names of the settings that a Server has, in their order.
func Settings() []string { return slices.Clone(settings) }

// look asks a server what it is. The settings are those of this role in this database.
func look(ctx context.Context, pool *pgxpool.Pool) (Server, error) {
	s := Server{Settings: map[string]string{}}
	if err := pool.QueryRow(ctx, "SHOW server_version").Scan(&s.Version); err != nil {
		return s, err
	}
	for _, name := range settings {
		var value string
		if err := pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return s, err
		}
		s.Settings[name] = value
	}
	for name, weak := range map[string][]string{
		"fsync": {"off"}, "full_page_writes": {"off"}, "synchronous_commit": {"off"},
	} {
		if slices.Contains(weak, s.Settings[name]) {
			s.Weak = append(s.Weak, name+" = "+s.Settings[name])
		}
	}
	slices.Sort(s.Weak)
	return s, nil
}
