// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// startSidecar emulates a mesh's proxy in the caller's pod and returns its address. Unless the port
// is opaque, it connects with the forwarder once the client has sent something or the detection of
// its protocol has ended, as Linkerd's and Istio's do.
func startSidecar(t *testing.T, forwarder string, opaque bool, detected <-chan struct{}) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = client.Close() }()
		sent := bufio.NewReader(client)
		if !opaque {
			spoke := make(chan struct{})
			go func() { _, _ = sent.Peek(1); close(spoke) }()
			select {
			case <-spoke:
			case <-detected:
				_ = client.(*net.TCPConn).SetReadDeadline(time.Unix(1, 0))
				<-spoke
				_ = client.(*net.TCPConn).SetReadDeadline(time.Time{})
			}
		}
		upstream, err := new(net.Dialer).DialContext(t.Context(), "tcp", forwarder)
		if err != nil {
			return
		}
		defer func() { _ = upstream.Close() }()
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = io.Copy(upstream, sent)
			_ = upstream.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(client, upstream)
		_ = client.(*net.TCPConn).CloseWrite()
		<-copied
	}()
	return l.Addr().String()
}

// TestRelay_AddsNoWaitBehindSidecar calls a server that speaks first, and one that is asked, through
// a mesh's proxy: the forwarder and what is behind it wait for nothing that the proxy does not wait
// for. With an opaque port, or one whose protocol is declared, nothing waits at all.
func TestRelay_AddsNoWaitBehindSidecar(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opaque, asks, detects bool
	}{
		"opaque port":       {opaque: true},
		"client that asks":  {asks: true},
		"detection, no hit": {detects: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opened atomic.Int32
			e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
				opened.Add(1)
				_ = st.Accept()
				_, _ = io.WriteString(st, "220 hello\r\n")
				_ = st.CloseWrite()
				_, _ = io.Copy(io.Discard, st)
				_ = st.Close()
			})
			detected := make(chan struct{})
			r := connected(t, e, shortTiming())
			client := dial(t, startSidecar(t, r.addr(15432), c.opaque, detected))
			if c.asks {
				if _, err := io.WriteString(client, "EHLO\r\n"); err != nil {
					t.Fatal(err)
				}
			}
			if c.detects {
				if n := opened.Load(); n != 0 {
					t.Errorf("%d streams while the proxy detects, so this emulates none", n)
				}
				close(detected)
			}
			if b, err := io.ReadAll(client); string(b) != "220 hello\r\n" || err != nil {
				t.Errorf("got %q, %v", b, err)
			}
			_ = client.CloseWrite()
		})
	}
}
