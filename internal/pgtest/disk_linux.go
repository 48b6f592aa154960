package pgtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5/pgxpool"
)

// diskSize is enough for tables that are new.
const diskSize = "8m"

// Disk is a server whose tables lie on a small file system of their own: Gatepost's,
// and those that are made later. Its WAL lies elsewhere, so that the server goes on when
// the disk is full: a statement that needs another page fails with SQLSTATE 53100.
type Disk struct {
	Server *pgtemp.Server
	Pool   *pgxpool.Pool

	dir string
}

// NewDisk starts the server, which stops when the test ends. The file system is one in
// memory, which only root may mount, and not in every container: the test is skipped where
// it can't.
func NewDisk(tb testing.TB) *Disk {
	tb.Helper()
	dir := mount(tb)
	s, pool := ownServer(tb) // stops before the file system goes
	d := &Disk{Server: s, Pool: pool, dir: dir}
	var data string
	if err := pool.QueryRow(tb.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		tb.Fatal(err)
	}
	if err := giveTo(dir, data); errors.Is(err, fs.ErrNotExist) {
		tb.Skip(err) // it is in a container
	} else if err != nil {
		tb.Fatal(err)
	}
	for _, sql := range []string{
		`CREATE TABLESPACE small LOCATION '` + dir + `'`,
		`ALTER TABLE gatepost.leases SET TABLESPACE small`,
		`ALTER TABLE gatepost.waiters SET TABLESPACE small`,
		`ALTER TABLE gatepost.idempotency_keys SET TABLESPACE small`,
		`ALTER TABLE gatepost.idempotency_steps SET TABLESPACE small`,
		`ALTER ROLE CURRENT_USER SET default_tablespace = small`,
	} {
		if _, err := pool.Exec(tb.Context(), sql); err != nil {
			tb.Fatal(err)
		}
	}
	pool.Reset() // the setting is for new sessions
	return d
}

// mount makes a file system, which goes when the test ends.
func mount(tb testing.TB) (dir string) {
	tb.Helper()
	dir, err := os.MkdirTemp("/tmp", "gatepost-disk-") // short, and open to the server's user
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.Remove(dir) })
	if err := syscall.Mount("gatepost", dir, "tmpfs", 0, "size="+diskSize+",mode=0700"); err != nil {
		tb.Skipf("a small file system can't be mounted here, root may: %v", err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// giveTo makes a directory that of the owner of another one.
func giveTo(dir, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("nobody owns %s", like)
	}
	return os.Chown(dir, int(owner.Uid), int(owner.Gid))
}

func (d *Disk) filler() string { return filepath.Join(d.dir, "filler") }

// Fill leaves no room for another page.
func (d *Disk) Fill(tb testing.TB) {
	tb.Helper()
	file, err := os.Create(d.filler())
	if err != nil {
		tb.Fatal(err)
	}
	for page := make([]byte, 4096); err == nil; {
		_, err = file.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		tb.Fatal(err)
	}
	if err := file.Close(); err != nil {
		tb.Fatal(err)
	}
}

// Free gives the room back.
func (d *Disk) Free(tb testing.TB) {
	tb.Helper()
	if err := os.Remove(d.filler()); err != nil {
		tb.Fatal(err)
	}
}
