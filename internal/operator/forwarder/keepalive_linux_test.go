// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestKeepAlive_AcceptedConnectionsInheritOptions(t *testing.T) {
	t.Parallel()
	ln, err := ListenOptions{}.listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		far, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil && host == "::1" {
			t.Log("no IPv6 here:", err)
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		near, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := near.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []struct{ level, name, want int }{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		} {
			_ = raw.Control(func(fd uintptr) {
				if got, err := unix.GetsockoptInt(int(fd), o.level, o.name); got != o.want || err != nil {
					t.Errorf("%s: option %d is %d (%v), want %d", host, o.name, got, err, o.want)
				}
			})
		}
		// As when the process is killed: a client that waits for a session must not read an end.
		_ = near.Close()
		wantReset(t, far)
		_ = far.Close()
	}
}

// TestKeepAlive_CloseIsResetBetweenAttempts checks that a client that waits for its next attempt
// reads no EOF when this process is killed.
func TestKeepAlive_CloseIsResetBetweenAttempts(t *testing.T) {
	t.Parallel()
	const trials = 4
	came := make(chan struct{}, trials)
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		_ = st.Refuse(tunnel.RefusedDraining)
		select {
		case came <- struct{}{}:
		default: // enough
		}
	})
	timing := shortTiming()
	timing.SessionWait, timing.OpenTimeout = testTimeout, testTimeout
	r := start(t, e, timing)
	accepted := say(t, r)
	_ = r.dial(15432)
	near := wait.Receive(t, "a connection", accepted)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for tried := 0; tried < trials; {
		select {
		case <-came:
			tried++
		case <-tick.C:
		}
		if tried > 0 && !closesWithReset(t, near) {
			t.Fatalf("after trial %d an end is what the client would read", tried)
		}
	}
}

// TestErrorResponse_IsNotTruncated checks an error response that is still in transit when its
// connection is closed here.
func TestErrorResponse_IsNotTruncated(t *testing.T) {
	t.Parallel()
	timing := shortTiming()
	timing.Linger = testTimeout
	r := start(t, startEdge(t, refuseWith(tunnel.RefusedOffline)), timing)
	accepted := say(t, r)
	c := r.dial(10080)
	if res, _ := get(t, c, "/"); res.StatusCode != http.StatusServiceUnavailable {
		t.Error(res.Status)
	}
	if closesWithReset(t, wait.Receive(t, "a connection", accepted)) {
		t.Error("closing the connection would reset it")
	}
}

// say makes the forwarder know its usual world, and returns what it accepts.
func say(t *testing.T, r *runningForwarder) <-chan *net.TCPConn {
	t.Helper()
	accepted := make(chan *net.TCPConn, 1)
	r.listeners.relayConn = func(c forward.Connection, to *portAssignment, stats *portStats) {
		accepted <- c.(*net.TCPConn)
		r.relayConn(c, to, stats)
	}
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	return accepted
}

// closesWithReset reports whether closing c is a reset.
func closesWithReset(t *testing.T, c *net.TCPConn) (yes bool) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlled := raw.Control(func(fd uintptr) {
		var l *unix.Linger
		if l, err = unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER); err == nil {
			yes = l.Onoff == 1 && l.Linger == 0
		}
	}); controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	return yes
}
