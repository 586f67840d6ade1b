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
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// LoseCommits returns the URL of a relay to the server. lose is asked at each answer to a COMMIT;
// when it returns true, the connection ends before the answer is relayed. It is called from one
// goroutine at a time.
func (s *Server) LoseCommits(t testing.TB, databaseURL string, lose func() bool) string {
	t.Helper()
	var mu sync.Mutex
	return s.relay(t, databaseURL, func() {}, func(answers []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Contains(answers, []byte("COMMIT\x00")) && lose()
	})
}

// CountTrips returns the URL of a relay to the server, and the number of round trips: of requests
// that were sent after an answer, or first, on all connections.
func (s *Server) CountTrips(t testing.TB, databaseURL string) (relayURL string, trips *atomic.Int64) {
	t.Helper()
	trips = new(atomic.Int64)
	var asking atomic.Bool
	return s.relay(t, databaseURL, func() {
		if !asking.Swap(true) {
			trips.Add(1)
		}
	}, func([]byte) bool {
		asking.Store(false)
		return false
	}), trips
}

// relay returns the URL of a relay to the server. asked is called at what a client sends, and loses
// at what the server answers; when it returns true, the connection ends and the answer is lost.
func (s *Server) relay(t testing.TB, databaseURL string, asked func(), loses func(answers []byte) bool) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	listener, relayURL := listenBefore(t, databaseURL)
	r := &relay{server: filepath.Join(s.dir, ".s.PGSQL.5432"), asked: asked, loses: loses,
		conns: map[net.Conn]struct{}{}}
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { r.serve(ctx, client) })
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
	must.Succeed(t, err)
	u, err := url.Parse(databaseURL)
	must.Succeed(t, err)
	query := u.Query()
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	return listener, u.String()
}

// relay relays connections.
type relay struct {
	server string
	asked  func()
	loses  func(answers []byte) bool
	mu     sync.Mutex
	conns  map[net.Conn]struct{} // conns is nil once closed.
}

// track reports whether the connection may live.
func (r *relay) track(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *relay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *relay) serve(ctx context.Context, client net.Conn) {
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
		return forward(server, client, func([]byte) bool { r.asked(); return false })
	})
	both.Go(func() error {
		defer func() { _ = client.Close() }()
		return forward(client, server, r.loses)
	})
	_ = both.Wait() // the connection's end
}

// forward copies until the end, or until lost returns true of what would be copied next.
func forward(to io.Writer, from io.Reader, lost func([]byte) bool) error {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && lost(b[:n]) {
			return io.EOF
		}
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
}
