package pgtemp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The environment variables that choose the server.
const (
	envBin   = "GATEPOST_PG_BIN"
	envImage = "GATEPOST_PG_IMAGE"
)

// usualFolders are where packages put the server's binaries, outside PATH.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // RPM
	"/usr/lib/postgresql*/bin",                           // SUSE
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on ARM
	"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/Library/PostgreSQL/*/bin",                          // EDB's installer
	"/usr/local/pgsql/bin",                               // from source
}

// location is where a server comes from: exactly one of the two is set.
type location struct {
	binDir string
	image  string
}

// patience bounds a start whose caller set no deadline. Docker may have to pull.
func (l location) patience() time.Duration {
	if l.image != "" {
		return 10 * time.Minute
	}
	return time.Minute
}

// find decides where the server comes from, in the order of the package's comment.
func find(ctx context.Context, opts *Options) (location, error) {
	if dir := opts.BinDir; dir != "" {
		return location{binDir: dir}, checkBinDir(dir)
	}
	if image := opts.Image; image != "" {
		if err := engine(ctx); err != nil {
			return location{}, fmt.Errorf("image %s: %w; start Docker", image, err)
		}
		return location{image: image}, nil
	}
	if dir := os.Getenv(envBin); dir != "" {
		if err := checkBinDir(dir); err != nil {
			return location{}, fmt.Errorf("%s: %w", envBin, err)
		}
		return location{binDir: dir}, nil
	}
	if dir, ok := findBinDir(ctx); ok {
		return location{binDir: dir}, nil
	}
	err := engine(ctx)
	if ctx.Err() != nil {
		return location{}, context.Cause(ctx)
	}
	if err != nil {
		return location{}, noServer(err)
	}
	return location{image: cmp.Or(os.Getenv(envImage), DefaultImage)}, nil
}

// noServer is ErrNoServer with all that a person can do about it.
func noServer(docker error) error {
	return fmt.Errorf("%w in PATH or the usual folders, and no Docker (%w); "+
		"install the server (apt-get install postgresql, brew install postgresql), start Docker, "+
		"set %s to the folder of initdb and postgres, or pass a database URL",
		ErrNoServer, docker, envBin)
}

// findBinDir looks for local binaries. Windows has none that this package can run.
func findBinDir(ctx context.Context) (string, bool) {
	if !localSupported {
		return "", false
	}
	for _, dir := range candidates(ctx) {
		if checkBinDir(dir) == nil {
			return dir, true
		}
	}
	return "", false
}

// candidates are the directories that may hold a server, the likeliest first.
func candidates(ctx context.Context) []string {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range usualFolders {
		matches, _ := filepath.Glob(pattern) // the patterns are constants and well formed
		slices.SortFunc(matches, newestFirst)
		dirs = append(dirs, matches...)
	}
	return dirs
}

// newestFirst orders paths by the first number in them, so that 18 comes before 9.6.
func newestFirst(a, b string) int {
	return cmp.Or(cmp.Compare(major(b), major(a)), strings.Compare(b, a))
}

// major is the first number in path, or 0.
func major(path string) int {
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	for field := range strings.FieldsFuncSeq(path, notDigit) {
		n, _ := strconv.Atoi(field)
		return n
	}
	return 0
}

// checkBinDir says what keeps dir from being a server's directory of binaries.
func checkBinDir(dir string) error {
	if !localSupported {
		return fmt.Errorf("local PostgreSQL binaries can't be used on %s: use Docker or a database URL", runtime.GOOS)
	}
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("no PostgreSQL server there: %w", err)
		}
		if info.Mode()&0o111 == 0 {
			return fmt.Errorf("no PostgreSQL server in %s: %s is not executable", dir, name)
		}
	}
	return nil
}

// engineTimeout bounds the question whether Docker is there: a client whose engine is
// remote and gone would wait for minutes.
const engineTimeout = 10 * time.Second

// engine says why Docker can't be used, nil when an engine answers.
func engine(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	_, err := exec.CommandContext(within, "docker", "version", "--format", "{{.Server.Version}}").Output()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("the docker command is not installed")
	}
	return errors.New("docker's engine does not answer")
}
