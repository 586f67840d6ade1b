// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// canSplice reports that the system has splice(2), for which sealed streams have connections of their
// own.
const canSplice = true

// tuneTCP sets TCP_USER_TIMEOUT, which bounds how long sent data may stay unacknowledged; where the
// kernel refuses, pings do that.
//
// On a connection that leaves the machine it also selects bbr, which does not mistake each lost
// packet for congestion, and TCP_NOTSENT_LOWAT, so that data the network cannot carry yet waits in
// the multiplexer, where other streams pass it, and not in the kernel.
//
// On a local connection it sets small buffers: more than a few frames in them would only be cold in
// the caches when they are read.
func tuneTCP(c *net.TCPConn) {
	withSocket(c, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout/time.Millisecond))
		if isLocal(c) {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, localRecvBuffer)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, localSendBuffer)
			return
		}
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, bbr)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSentLowat)
	})
}

// allowSlowReader undoes TCP_USER_TIMEOUT, which also ends a connection whose peer takes no bytes for
// as long, although it answers. The multiplexer's pings and TCP's keepalive detect a dead peer.
func allowSlowReader(c *net.TCPConn) {
	withSocket(c, func(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0) })
}

const (
	bbr             = "bbr"
	notSentLowat    = 128 << 10 // unsent bytes that the kernel buffers
	localRecvBuffer = 512 << 10 // bytes; the kernel doubles it for its own overhead
	localSendBuffer = 256 << 10
)

func isLocal(c *net.TCPConn) bool {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// congestionControl returns the name of the connection's congestion control; "" when it is local or
// unknown.
func congestionControl(c net.Conn) string {
	tcp, ok := c.(*net.TCPConn)
	if !ok || isLocal(tcp) {
		return ""
	}
	name := ""
	withSocket(tcp, func(fd int) { name, _ = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	return name
}

// retransmits returns how many packets the connection has sent again, and how many it has sent in
// all. Both wrap at 32 bits.
func retransmits(c net.Conn) (retransmitted, sent uint32) {
	if tcp, ok := c.(*net.TCPConn); ok {
		withSocket(tcp, func(fd int) {
			if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				retransmitted, sent = info.Total_retrans, info.Segs_out
			}
		})
	}
	return retransmitted, sent
}

// maxDescriptors returns how many descriptors the process may have.
func maxDescriptors() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return limit.Cur
}

func withSocket(c *net.TCPConn, f func(fd int)) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { f(int(fd)) })
}
