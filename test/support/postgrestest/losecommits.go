// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package postgrestest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

// LoseCommits returns the URL of a relay to the server. lose is asked at each COMMIT; when it
// returns true, the server gets the COMMIT, and the connection ends before the answer is relayed.
// It is called from one goroutine at a time.
func (s *Server) LoseCommits(t testing.TB, databaseURL string, lose func() bool) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	listener, relayURL := listenBefore(t, databaseURL)
	r := &commitRelay{server: filepath.Join(s.dir, ".s.PGSQL.5432"), lose: lose, conns: map[net.Conn]struct{}{}}
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { r.relay(ctx, client) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		r.closeAll()
		relays.Wait()
	})
	return relayURL
}

// listenBefore returns a listener, and the database's URL with the listener in place of its server.
func listenBefore(t testing.TB, databaseURL string) (net.Listener, string) {
	t.Helper()
	dir := t.TempDir()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	return listener, u.String()
}

// commitRelay relays connections and loses answers.
type commitRelay struct {
	server string
	mu     sync.Mutex
	lose   func() bool
	conns  map[net.Conn]struct{} // nil once closed
}

// track reports whether the connection may live.
func (r *commitRelay) track(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *commitRelay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *commitRelay) relay(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(ctx, "unix", r.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !r.track(client) || !r.track(server) {
		return
	}
	var both errgroup.Group
	both.Go(func() error {
		defer func() { _ = server.Close() }()
		return r.requests(client, server)
	})
	both.Go(func() error {
		defer func() { _ = client.Close() }()
		_, err := io.Copy(client, server)
		return err
	})
	_ = both.Wait() // the connection's end
}

// requests relays what the client sends. database/sql sends a COMMIT alone.
func (r *commitRelay) requests(client, server net.Conn) error {
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if bytes.Contains(b[:n], []byte("commit")) && r.loses() {
			_ = client.Close()
		}
		if _, err := server.Write(b[:n]); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
}

func (r *commitRelay) loses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lose()
}
