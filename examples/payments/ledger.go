package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// ledger is what the provider has charged: a line of JSON each, in a file that outlives
// a kill, or in memory.
type ledger struct {
	mu      sync.Mutex
	file    *os.File // nil: in memory
	charges []providerCharge
}

// openLedger reads what is there. An empty name is a ledger in memory.
func openLedger(name string) (*ledger, error) {
	if name == "" {
		return &ledger{}, nil
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	l := &ledger{file: file}
	for lines := json.NewDecoder(file); ; {
		var c providerCharge
		switch err := lines.Decode(&c); {
		case errors.Is(err, io.EOF):
			return l, nil
		case err != nil:
			return nil, errors.Join(fmt.Errorf("read the ledger %s: %w", name, err), file.Close())
		}
		l.charges = append(l.charges, c)
	}
}

// add books a charge, durably.
func (l *ledger) add(key string, amount int64) (providerCharge, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := providerCharge{ID: fmt.Sprintf("ch_%d", len(l.charges)+1), Amount: amount, Key: key}
	if l.file != nil {
		if err := json.NewEncoder(l.file).Encode(c); err != nil {
			return c, err
		}
		if err := l.file.Sync(); err != nil {
			return c, err
		}
	}
	l.charges = append(l.charges, c)
	return c, nil
}

func (l *ledger) all() []providerCharge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.charges)
}

func (l *ledger) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
