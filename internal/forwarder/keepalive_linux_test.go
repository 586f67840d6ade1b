// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAcceptedConnectionsAskForTheirClients(t *testing.T) {
	t.Parallel()
	ln, err := listen(t.Context(), 0)
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
			t.Skip("no IPv6 here:", err)
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
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4}, {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		} {
			_ = raw.Control(func(fd uintptr) {
				if got, err := unix.GetsockoptInt(int(fd), o.level, o.name); got != o.want || err != nil {
					t.Errorf("%s: option %d is %d (%v), want %d", host, o.name, got, err, o.want)
				}
			})
		}
		_, _ = near.Close(), far.Close()
	}
}
