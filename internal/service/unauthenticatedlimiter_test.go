// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// connFrom is a connection with a remote address.
type connFrom struct {
	net.Conn
	from net.Addr
}

func (a *connFrom) RemoteAddr() net.Addr { return a.from }

func TestUnauthenticatedLimiter_CountsByClient(t *testing.T) {
	t.Parallel()
	u := newUnauthenticatedLimiter(2, slog.New(slog.DiscardHandler))
	from := func(addr string) *connFrom {
		return &connFrom{from: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))}
	}
	first := from("192.0.2.1:1")
	for _, c := range []struct {
		conn net.Conn
		in   bool
	}{
		{first, true}, {from("192.0.2.1:2"), true}, {from("192.0.2.1:3"), false}, {from("192.0.2.2:1"), true},
		{&connFrom{from: &net.UnixAddr{Name: "@"}}, true}, {&connFrom{from: &net.UnixAddr{Name: "x"}}, true},
		{&connFrom{from: &net.UnixAddr{Name: "y"}}, false},
	} {
		if got := u.add(c.conn); got != c.in {
			t.Errorf("%s: %v, want %v", c.conn.RemoteAddr(), got, c.in)
		}
	}
	u.remove(first)
	u.remove(first) // does nothing
	if !u.add(first) || u.add(from("192.0.2.1:5")) {
		t.Error("a removed connection makes room for exactly one")
	}
	for c := range u.conns {
		u.remove(c)
	}
	if len(u.clients) > 0 || len(u.conns) > 0 {
		t.Errorf("connections that were removed are kept: %+v", u)
	}
}

// TestUnauthenticatedLimiter_DropsTheOldest checks that silent connections do not keep new ones of
// their client out, and that a burst of young ones does not end itself.
func TestUnauthenticatedLimiter_DropsTheOldest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, max := range []int{1, 2} {
			u := newUnauthenticatedLimiter(max, slog.New(slog.DiscardHandler))
			add := func() (near net.Conn, in bool) {
				near, far := net.Pipe()
				from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
				return near, u.add(&connFrom{far, from})
			}
			silent, _ := add()
			time.Sleep(silentAge)
			for range max { // the last one takes the place of the silent one
				if _, in := add(); !in {
					t.Fatal("a silent connection keeps a new one out")
				}
			}
			if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the silent connection was not closed: %v", err)
			}
			if _, in := add(); in {
				t.Error("a young connection was dropped")
			}
			if len(u.clients) != 1 || len(u.conns) != max || u.refused.Load() != 2 {
				t.Errorf("%d connections of %d clients are counted, %d refused", len(u.conns), len(u.clients),
					u.refused.Load())
			}
		}
	})
}

// TestUnauthenticatedLimiter_LetsHandshakesFinish checks that connections with a TLS handshake, which take
// their time on a busy machine, stay when silent ones can go, and go later than these.
func TestUnauthenticatedLimiter_LetsHandshakesFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUnauthenticatedLimiter(2, slog.New(slog.DiscardHandler))
		add := func() (near, far net.Conn, in bool) {
			near, far = net.Pipe()
			far = &connFrom{far, net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))}
			return near, far, u.add(far)
		}
		shaking, far, _ := add()
		u.spoke(far)
		silent, _, _ := add()
		time.Sleep(silentAge)
		if _, _, in := add(); !in {
			t.Error("a silent connection keeps a new one out")
		}
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the silent connection was not closed, but the older one with a handshake: %v", err)
		}
		_, far, in := add()
		if in {
			t.Error("a connection was dropped too early")
		}
		for c := range u.conns {
			u.spoke(c)
		}
		time.Sleep(shakingAge - silentAge)
		if !u.add(far) {
			t.Error("a handshake that does not end keeps a new connection out")
		}
		if _, err := shaking.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the oldest handshake was not ended: %v", err)
		}
	})
}

// TestUnauthenticatedLimiter_BearsSlowHandshakes checks that connections do not end each other's
// handshakes for good where these take longer than shakingAge.
func TestUnauthenticatedLimiter_BearsSlowHandshakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUnauthenticatedLimiter(1, slog.New(slog.DiscardHandler))
		add := func() (net.Conn, bool) {
			_, far := net.Pipe()
			far = &connFrom{far, net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))}
			in := u.add(far)
			u.spoke(far)
			return far, in
		}
		_, _ = add()
		var slow net.Conn
		for in := false; !in; time.Sleep(roomPause) {
			slow, in = add()
		}
		time.Sleep(shakingAge) // it ends after the time for which it would have been borne
		if _, in := add(); in {
			t.Error("the second handshake was ended as early as the first")
		}
		u.handshakeEnded(slow)
		u.remove(slow)
		_, _ = add()
		time.Sleep(2*shakingAge + 4*roomPause) // twice what the last one took
		if _, in := add(); !in {
			t.Error("a handshake that does not end keeps a new connection out although others ended")
		}
	})
}

// TestUnauthenticatedLimiter_SharesHandshakes checks which connections make room when there are as many
// handshakes of all clients as there may be, and which new ones wait for room.
func TestUnauthenticatedLimiter_SharesHandshakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUnauthenticatedLimiter(4, slog.New(slog.DiscardHandler))
		u.maxHandshakes = 4
		add := func(client string, wantIn bool, wantWait time.Duration) (near, far net.Conn) {
			t.Helper()
			near, far = net.Pipe()
			far = &connFrom{far, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client + ":1"))}
			began := time.Now()
			in, waited := u.add(far), time.Since(began).Round(2*roomPause)
			if in != wantIn || waited != wantWait || len(u.handshakes) > 4 {
				t.Errorf("added: %v after %s, %d handshakes; want %v after %s, at most 4", in, waited,
					len(u.handshakes), wantIn, wantWait)
			}
			return near, far
		}
		expectClosed := func(c net.Conn, want bool) {
			t.Helper()
			_ = c.SetReadDeadline(time.Now())
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) != want {
				t.Errorf("closed: %v, want %v", !want, want)
			}
		}
		slow, _ := add("192.0.2.1", true, 0)
		silent1, _ := add("192.0.2.2", true, 0)
		_, far := add("192.0.2.2", true, 0)
		u.spoke(far)
		_, done := add("192.0.2.2", true, 0)
		add("192.0.2.2", false, 0) // more than its share
		time.Sleep(silentAge - 4*roomPause)
		add("192.0.2.3", true, 4*roomPause) // waits for the first one that can go
		expectClosed(slow, false)           // it is older, but its client has fewer
		expectClosed(silent1, true)
		u.handshakeEnded(done)
		u.handshakeEnded(done) // does nothing
		add("192.0.2.4", true, 0)
		time.Sleep(shakingAge)
		u.spoke(far)
		add("192.0.2.1", true, 0) // its own, or another single one
		expectClosed(slow, true)
		add("192.0.2.5", true, 0)
		for c := range u.conns {
			u.remove(c)
		}
		if len(u.handshakes) > 0 || u.shaking > 0 {
			t.Errorf("%d handshakes of %d clients are left", len(u.handshakes), u.shaking)
		}
	})
}
