// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestTLSListener_LimitsTickets holds that connections which begin with a ticket count as others do that
// have shown no credential, and that a wrong ticket gets no answer.
func TestTLSListener_LimitsTickets(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	log := slog.New(slog.DiscardHandler)
	d := &tlsListener{listener: ln, tls: &tls.Config{MinVersion: tls.VersionTLS13}, log: log,
		tunnels: tunnel.NewServer(tunnel.ServerConfig{}), unauthenticated: newUnauthenticatedLimiter(2, log)}
	ctx, stop := context.WithCancel(context.Background())
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		d.acceptConns(ctx)
	}()
	t.Cleanup(func() {
		stop()
		_ = ln.Close()
		<-accepting
		d.conns.Wait()
	})
	dial := func(begin []byte) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		must.Succeed(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write(begin)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		return c
	}
	counted := func() int {
		d.unauthenticated.mu.Lock()
		defer d.unauthenticated.mu.Unlock()
		return len(d.unauthenticated.conns)
	}
	isClosed := func(c net.Conn) bool {
		n, err := c.Read(make([]byte, 1))
		return n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	if wrong := dial(append([]byte{0xf1}, make([]byte, 32)...)); !isClosed(wrong) {
		t.Error("a wrong ticket is answered")
	}
	wait.Until(t, "the end of its count", func() bool { return counted() == 0 })
	for range 2 {
		dial([]byte{0xf1})
	}
	wait.Until(t, "two connections to be counted", func() bool { return counted() == 2 })
	if third := dial([]byte{0xf1}); !isClosed(third) {
		t.Error("a third connection of the client stays")
	}
	wait.Until(t, "the end of the unfinished ones", func() bool { return counted() == 0 }) // within 5 s
	dial([]byte{0xf1})
	wait.Until(t, "another one", func() bool { return counted() == 1 })
	stopped := time.Now()
	stop()
	wait.Until(t, "its end with the listener", func() bool { return counted() == 0 })
	if took := time.Since(stopped); took > 4*time.Second {
		t.Errorf("it kept the server from stopping for %s", took)
	}
}
