package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// startRedis is redsync on one Redis that syncs its log before it answers.
func startRedis(ctx context.Context) (*server, error) {
	s := &server{}
	socket, err := s.run(ctx, "redis-server", func(dir string) ([]string, string) {
		socket := dir + "/redis.sock"
		return []string{
			"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", "always",
		}, socket
	})
	if err != nil {
		s.close()
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	s.later(func() { _ = client.Close() })
	if err := ready(ctx, func(ctx context.Context) error { return client.Ping(ctx).Err() }); err != nil {
		s.close()
		return nil, fmt.Errorf("redis-server: %w", err)
	}
	locks := redsync.New(goredis.NewPool(client))
	s.peers = []peer{{name: "redsync, one Redis, appendfsync always", refuses: "nothing: it has no token", cycle: func(ctx context.Context) error {
		mutex := locks.NewMutex("peers", redsync.WithExpiry(30*time.Second), redsync.WithTries(1))
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		_, err := mutex.UnlockContext(ctx)
		return err
	}}}
	return s, nil
}
