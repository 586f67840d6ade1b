// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepAlive sets options on a listening socket that its connections inherit (Linux, tcp(7)), which
// saves four system calls a connection: TCP keep-alive, and SO_LINGER 0, which makes closing them a
// reset: if this process is killed while a connection waits for a session, its client must not read
// an end. Multipath TCP is disabled, as its sockets do not pass the options on.
func keepAlive(config *net.ListenConfig) {
	config.SetMultipathTCP(false)
	config.KeepAlive = -1 // disables Go's own
	config.Control = func(_, _ string, c syscall.RawConn) error {
		var err error
		set := func(fd, level, option, value int) { err = cmp.Or(err, unix.SetsockoptInt(fd, level, option, value)) }
		controlErr := c.Control(func(fd uintptr) {
			set(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
			set(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle.Seconds()))
			set(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval.Seconds()))
			set(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes)
			err = cmp.Or(err, unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
		})
		return cmp.Or(controlErr, err)
	}
}

// hasUnreadInput reports whether the socket has unread input, without consuming it or an error.
func hasUnreadInput(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n > 0
}
