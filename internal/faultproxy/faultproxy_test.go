package faultproxy_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
)

// A server that shuts down waits for a client that has connected and says nothing.
func TestProxy_ConnectsToNobodyWhileItStalls(t *testing.T) {
	t.Parallel()
	server, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p := faultproxy.New(t, "postgres://"+server.Addr().String())
	p.SetStall(true)
	client, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "startup"); err != nil {
		t.Fatal(err)
	}
	if conn, err := accept(t, server, 100*time.Millisecond); err == nil {
		conn.Close()
		t.Fatal("connected while all stalls")
	}
	p.SetStall(false)
	conn, err := accept(t, server, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make([]byte, len("startup"))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "startup" {
		t.Errorf("arrived %q, %v", got, err)
	}
}

func accept(t *testing.T, l *net.TCPListener, within time.Duration) (net.Conn, error) {
	t.Helper()
	if err := l.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	return l.Accept()
}
