// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tuneTCP bounds how long sent data may stay unacknowledged; a kernel that refuses leaves that to
// the pings.
//
// On a connection that leaves the machine it also asks for bbr, which does not take each lost
// packet for a full link, and has what the link cannot carry yet wait in the multiplexer, where it
// is seen and other streams pass it, and not in the kernel.
//
// On one within the machine nothing is on its way: more than a few frames in its buffers would only
// be cold in the caches when they are read, and keep whoever reads them from letting others have a
// turn.
func tuneTCP(c *net.TCPConn) {
	onSocket(c, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout/time.Millisecond))
		if isLocal(c) {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, localReceive)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, localSend)
			return
		}
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, bbr)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentMark)
	})
}

const (
	bbr          = "bbr"
	unsentMark   = 128 << 10 // bytes that the kernel takes beyond what it may send
	localReceive = 512 << 10 // bytes; the kernel takes twice as much, with what it needs for itself
	localSend    = 256 << 10
)

func isLocal(c *net.TCPConn) bool {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// congestion returns the name of the connection's congestion control; "" when it does not matter or
// is unknown.
func congestion(c net.Conn) string {
	tcp, ok := c.(*net.TCPConn)
	if !ok || isLocal(tcp) {
		return ""
	}
	name := ""
	onSocket(tcp, func(fd int) { name, _ = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	return name
}

// resent returns how many packets the connection has sent again, and how many it has sent in all.
// Both begin anew after 4 billion.
func resent(c net.Conn) (again, all uint32) {
	if tcp, ok := c.(*net.TCPConn); ok {
		onSocket(tcp, func(fd int) {
			if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				again, all = info.Total_retrans, info.Segs_out
			}
		})
	}
	return again, all
}

func onSocket(c *net.TCPConn, f func(fd int)) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { f(int(fd)) })
}
