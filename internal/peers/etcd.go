package main

import (
	"context"
	"fmt"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// startEtcd is etcd's concurrency.Mutex on one member, with one session for all cycles,
// as its documentation has it.
func startEtcd(ctx context.Context) (*server, error) {
	s := &server{}
	peer, client, err := twoURLs()
	if err != nil {
		return nil, err
	}
	endpoint, err := s.run(ctx, "etcd", func(dir string) ([]string, string) {
		return []string{
			"--data-dir", dir + "/data", "--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer, "--log-level", "error",
		}, client
	})
	if err != nil {
		s.close()
		return nil, err
	}
	if err := s.etcdMutex(ctx, endpoint); err != nil {
		s.close()
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return s, nil
}

// twoURLs are of two ports of loopback that were free a moment ago.
func twoURLs() (peer, client string, err error) {
	var urls [2]string
	for i := range urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		defer l.Close()
		urls[i] = "http://" + l.Addr().String()
	}
	return urls[0], urls[1], nil
}

func (s *server) etcdMutex(ctx context.Context, endpoint string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	s.later(func() { _ = client.Close() })
	if err := ready(ctx, func(ctx context.Context) error { _, err := client.Get(ctx, "/"); return err }); err != nil {
		return err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	if err != nil {
		return err
	}
	s.later(func() { _ = session.Close() })
	s.peers = []peer{{name: "etcd concurrency.Mutex, one member", refuses: "a check of its revision, where there is one", cycle: func(ctx context.Context) error {
		mutex := concurrency.NewMutex(session, "/peers")
		if err := mutex.TryLock(ctx); err != nil {
			return err
		}
		return mutex.Unlock(ctx)
	}}}
	return nil
}
