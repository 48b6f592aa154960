//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package pgtemp

import (
	"errors"

	"github.com/jackc/pgx/v5"
)

// socketPort names the socket's file.
const socketPort = "5432"

// launchPooler has no process to give here.
func launchPooler(string, *pgx.ConnConfig, *PoolerOptions) (poolerProcess, string, error) {
	return nil, "", errors.ErrUnsupported
}
