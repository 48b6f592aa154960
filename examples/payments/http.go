package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gatepost/gatepost/idem"
)

// eventListening is what a server logs first.
const eventListening = "listening"

// shutdownTimeout bounds the end of a server: requests that run may finish.
const shutdownTimeout = 5 * time.Second

// listen serves h until ctx ends, and says where.
func listen(ctx context.Context, address string, h http.Handler, log *slog.Logger) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	log.InfoContext(ctx, eventListening, "url", "http://"+l.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(limited); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

// authenticated refuses who isn't known. It is faked: the token is the account's name.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := accountOf(r); !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			problem(w, http.StatusUnauthorized, "Send the name of an account as the bearer token.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// accountOf is whose request it is, and so the scope of its key.
func accountOf(r *http.Request) (idem.Scope, bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return idem.Scope(token), ok && token != "" && len(token) <= 100
}

// endWithParent ends a process of the demo when the demo is gone, however it ended.
func endWithParent(stdin io.Reader) {
	_, _ = io.Copy(io.Discard, stdin)
	os.Exit(1)
}
