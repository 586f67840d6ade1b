// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
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
	for c := range u.clients {
		u.remove(c)
	}
	if len(u.clients) > 0 {
		t.Errorf("connections that were removed are kept: %+v", u)
	}
}
