// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// relayMode is what a relay does with its connections.
type relayMode int

const (
	relayPasses  relayMode = iota
	relayRefuses           // connections end, new ones at once
	relayHolds             // connections stay, and nothing is passed on
)

// relay passes connections on to another address, as long as the test lets it.
type relay struct {
	network, target string
	listener        net.Listener
	loses           func() bool // whether the answer to a COMMIT gets lost; nil = never
	relays          sync.WaitGroup

	mu      sync.Mutex
	mode    relayMode
	muted   bool                  // beats are held
	changed chan struct{}         // closed and replaced with the mode
	conns   map[net.Conn]struct{} // nil once closed
}

// newRelay starts a relay on the listener to the address.
func newRelay(listener net.Listener, network, target string, loses func() bool) *relay {
	r := &relay{network: network, target: target, listener: listener, loses: loses, changed: make(chan struct{}),
		conns: map[net.Conn]struct{}{}}
	r.relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.relays.Go(func() { r.relay(client) })
		}
	})
	return r
}

// newPostgresRelay starts a relay to the PostgreSQL server whose socket is in dir, and returns the
// directory of its own socket.
func newPostgresRelay(t *testing.T, dir string, loses func() bool) (r *relay, relayDir string) {
	t.Helper()
	relayDir = t.TempDir()
	const socket = ".s.PGSQL.5432"
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(relayDir, socket))
	must.Succeed(t, err)
	r = newRelay(listener, "unix", filepath.Join(dir, socket), loses)
	t.Cleanup(r.close)
	return r, relayDir
}

// set changes the mode. Connections end when the mode is relayRefuses, and with cut.
func (r *relay) set(mode relayMode, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return
	}
	r.mode = mode
	close(r.changed)
	r.changed = make(chan struct{})
	if mode == relayRefuses || cut {
		r.cutLocked()
	}
}

// mute holds beats of a replica, or passes them on again.
func (r *relay) mute(muted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.muted = muted
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *relay) cutLocked() {
	for c := range r.conns {
		_ = c.Close()
		delete(r.conns, c)
	}
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.mode, r.muted = relayRefuses, false
	close(r.changed)
	r.changed = make(chan struct{})
	r.cutLocked()
	r.conns = nil
	r.mu.Unlock()
	r.relays.Wait()
}

// track reports whether the connection may live.
func (r *relay) track(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil || r.mode == relayRefuses {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *relay) untrack(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// wait waits while bytes of a connection are held, and reports whether they may be passed on.
func (r *relay) wait(c net.Conn, beats *atomic.Bool) bool {
	for {
		r.mu.Lock()
		_, lives := r.conns[c]
		held, changed := r.mode == relayHolds || r.muted && beats.Load(), r.changed
		r.mu.Unlock()
		if !lives || !held {
			return lives
		}
		<-changed
	}
}

func (r *relay) relay(client net.Conn) {
	defer r.untrack(client)
	if !r.track(client) {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), r.network, r.target)
	if err != nil {
		return
	}
	defer r.untrack(server)
	if !r.track(server) {
		return
	}
	var beats atomic.Bool
	var back sync.WaitGroup
	back.Go(func() {
		defer r.untrack(client)
		r.pass(client, server, func([]byte) bool { return r.wait(client, &beats) })
	})
	r.pass(server, client, func(b []byte) bool {
		if bytes.Contains(b, []byte("UPDATE replica_beats")) {
			beats.Store(true)
		}
		if !r.wait(client, &beats) {
			return false
		}
		if r.loses != nil && bytes.Contains(b, []byte("commit")) && r.loses() {
			_ = client.Close() // the server gets the COMMIT
		}
		return true
	})
	r.untrack(server)
	back.Wait()
}

// pass passes bytes on while may allows it.
func (r *relay) pass(to io.Writer, from io.Reader, may func([]byte) bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && may(b[:n]) {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		} else if n > 0 {
			return
		}
		if err != nil {
			return
		}
	}
}
