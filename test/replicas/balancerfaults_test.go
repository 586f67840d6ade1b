// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// namedBackends starts a balancer over backends that answer each line with their number.
func namedBackends(t *testing.T, n int) (b *balancer, ready []*atomic.Bool) {
	t.Helper()
	b = startBalancer(t)
	for i := range n {
		up := new(atomic.Bool)
		up.Store(true)
		ready = append(ready, up)
		health := servicetest.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
			if !up.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		addr := servicetest.ServeTCP(t, func(c *net.TCPConn) {
			for in := bufio.NewScanner(c); in.Scan(); {
				_, _ = fmt.Fprintln(c, i)
			}
		})
		b.add("http://"+health, [fronts]string{addr, addr, closedport.Reserve(t)})
		b.waitUp(i, true)
	}
	return b, ready
}

// lineConn is a client's connection through a balancer.
type lineConn struct {
	net.Conn
	in *bufio.Reader
}

// dialFrom connects to a front from a loopback address; "" is any.
func dialFrom(t *testing.T, b *balancer, front int, from string) *lineConn {
	t.Helper()
	d := &net.Dialer{}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.DialContext(t.Context(), "tcp", b.addrs[front])
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &lineConn{c, bufio.NewReader(c)}
}

// ask sends a line and returns the number of the backend that answers.
func (c *lineConn) ask(within time.Duration) (int, error) {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(c, "who\n"); err != nil {
		return 0, err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	var n int
	_, err = fmt.Sscan(line, &n)
	return n, err
}

func (c *lineConn) mustAsk(t *testing.T) int {
	t.Helper()
	n, err := c.ask(time.Minute)
	must.Succeed(t, err)
	return n
}

func TestBalancer_TakesTurnsOverReadyBackends(t *testing.T) {
	t.Parallel()
	b, ready := namedBackends(t, 3)
	count := func() (got [3]int) {
		for range 6 {
			got[dialFrom(t, b, frontService, "").mustAsk(t)]++
		}
		return got
	}
	if got := count(); got != [3]int{2, 2, 2} {
		t.Errorf("connections by backend: %v", got)
	}
	ready[1].Store(false)
	b.waitUp(1, false)
	if got := count(); got[1] != 0 || got[0] == 0 || got[2] == 0 {
		t.Errorf("connections by backend while 1 is not ready: %v", got)
	}
	b.pin(netip.MustParseAddr("127.1.2.3"), 1)
	if got := dialFrom(t, b, frontHTTP, "127.1.2.3").mustAsk(t); got != 1 {
		t.Errorf("a client that is pinned to 1 is served by %d", got)
	}
	b.unpin(netip.MustParseAddr("127.1.2.3"))
	if got := dialFrom(t, b, frontHTTP, "127.1.2.3").mustAsk(t); got == 1 {
		t.Error("a client that is pinned no more is served by the backend that is not ready")
	}
	if n, err := dialFrom(t, b, frontHTTPS, "").ask(time.Minute); err == nil {
		t.Errorf("backends that refuse connections: %d answers", n)
	}
}

func TestBalancer_Faults(t *testing.T) {
	t.Parallel()
	b, _ := namedBackends(t, 2)
	b.pin(netip.MustParseAddr("127.1.2.4"), 0)
	c := dialFrom(t, b, frontService, "127.1.2.4")
	c.mustAsk(t)
	b.delay(0, 20*time.Millisecond)
	began := time.Now()
	c.mustAsk(t)
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("an answer over a delayed link after %s", took)
	}
	b.heal(0)
	b.blackHole(0)
	if _, err := c.ask(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("asking over a black-holed link: %v", err)
	}
	b.waitUp(0, false)
	b.heal(0)
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if line, err := c.in.ReadString('\n'); line != "0\n" {
		t.Errorf("after the link is healed: %q, %v", line, err)
	}
	b.waitUp(0, true)
	if b.open(0) != 1 {
		t.Errorf("%d connections are open", b.open(0))
	}
	b.cut(0)
	if _, err := c.ask(time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("asking over a link that is cut: %v", err)
	}
	if _, err := dialFrom(t, b, frontService, "127.1.2.4").ask(time.Minute); err == nil {
		t.Error("a new connection over a link that is cut")
	}
	for range 3 {
		if got := dialFrom(t, b, frontService, "").mustAsk(t); got != 1 {
			t.Errorf("served by %d", got)
		}
	}
	b.heal(0)
	b.waitUp(0, true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil && dialFrom(t, b, frontService, "").mustAsk(t) != 0 {
	}
	if ctx.Err() != nil {
		t.Error("a healed backend gets no connection")
	}
}
