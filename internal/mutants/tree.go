package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tree is a copy of what git has of the working tree.
type tree struct{ dir string }

func copied(ctx context.Context) (*tree, error) {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	dir, err := os.MkdirTemp("", "gatepost-mutants")
	if err != nil {
		return nil, err
	}
	t := &tree{dir}
	if err := os.Chmod(dir, 0o755); err != nil { // tests start programs from it as another user
		return nil, err
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := t.copy(path); err != nil {
			t.remove()
			return nil, err
		}
	}
	return t, nil
}

func (t *tree) copy(path string) error {
	from, err := os.Open(path)
	if os.IsNotExist(err) { // deleted, and not committed yet
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	target := filepath.Join(t.dir, path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	to, err := os.Create(target)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		return err
	}
	return to.Close()
}

func (t *tree) remove() { _ = os.RemoveAll(t.dir) }

// with puts a fault in, calls fn, and takes it out.
func (t *tree) with(ctx context.Context, m mutant, fn func() error) error {
	if _, err := t.command(ctx, "git", "apply", m.path); err != nil {
		return err
	}
	err := fn()
	if _, back := t.command(context.WithoutCancel(ctx), "git", "apply", "-R", m.path); back != nil {
		return back
	}
	return err
}

// command runs in the copy, which no repository is above. Its error has what it said.
func (t *tree) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(t.dir), "GOFLAGS=-buildvcs=false")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(said.String()))
	}
	return out, err
}
