package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/job"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// puppetName makes the test binary be a command for gatepost run: its arguments say what
// it does.
const puppetName = "puppet"

// command is one of a puppet's.
func command(t *testing.T, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"--", self, puppetName}, args...)
}

func puppet(args []string) {
	var err error
	switch args[0] {
	case "beat":
		err = beat(args[1], args[2:])
	case "signals":
		err = reportSignals()
	case "fence":
		err = fenceWithSequencer()
	default:
		err = errors.New("unknown: " + args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beat writes, again and again, the time and who it is to a file, its sign of life; its
// manners are: deaf to signals, fork a child with the same manners, in a session of its
// own, leave that child behind.
func beat(file string, manners []string) error {
	has := func(manner string) bool { return slices.Contains(manners, manner) }
	if has("deaf") {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if has("fork") {
		manners = slices.DeleteFunc(slices.Clone(manners), func(m string) bool { return m == "fork" })
		child := exec.Command(os.Args[0], append([]string{puppetName, "beat", file + ".child"}, manners...)...)
		child.Stderr = os.Stderr
		if has("session") {
			child.SysProcAttr = newSession()
		}
		if err := child.Start(); err != nil {
			return err
		}
		if has("leave") {
			return awaitBeat(file + ".child")
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	for ticker := time.NewTicker(2 * time.Millisecond); ; <-ticker.C {
		if _, err := f.WriteAt(life{time.Now().UnixNano(), int64(os.Getpid()), int64(os.Getppid())}.bytes(), 0); err != nil {
			return err
		}
	}
}

// life is a sign of life.
type life struct{ at, pid, parent int64 }

func (l life) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(l.at))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.pid))
	return binary.LittleEndian.AppendUint64(b, uint64(l.parent))
}

// readLife reads the last sign of life; ok is false when there was none.
func readLife(file string) (l life, ok bool) {
	b, err := os.ReadFile(file)
	if err != nil || len(b) != 24 {
		return life{}, false
	}
	u := binary.LittleEndian.Uint64
	return life{int64(u(b)), int64(u(b[8:])), int64(u(b[16:]))}, true
}

func awaitBeat(file string) error {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if _, ok := readLife(file); ok {
			return nil
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // polls a state
	}
	return errors.New("no sign of life in " + file)
}

// reportSignals prints each signal that comes; SIGTERM ends it.
func reportSignals() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, job.Signals()...)
	fmt.Println("ready")
	for sig := range signals {
		fmt.Println(sig)
		if sig == syscall.SIGTERM {
			break
		}
	}
	return nil
}

// fenceWithSequencer does a fenced transaction as another process under the same lease.
func fenceWithSequencer() error {
	ctx := context.Background()
	seq, err := pglock.ParseSequencer(os.Getenv("GATEPOST_SEQUENCER"))
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := pglock.New(pool, pglock.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(ctx) }()
	return client.InTx(ctx, seq, func(tx pgx.Tx) error {
		var holder string
		err := tx.QueryRow(ctx, "SELECT holder FROM gatepost.leases WHERE name = $1", os.Getenv("GATEPOST_LEASE")).Scan(&holder)
		fmt.Println(strings.Join([]string{"fenced", os.Getenv("GATEPOST_LEASE"), os.Getenv("GATEPOST_TOKEN"), holder}, " "))
		return err
	})
}

// await waits for a state.
func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !reached(); {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to this: %s", what)
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polls a state
	}
}
