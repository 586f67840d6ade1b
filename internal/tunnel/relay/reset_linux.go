// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// isReset reports whether a TCP connection whose output was not closed here no longer exists.
func isReset(c net.Conn) (reset bool) {
	if owner, ok := c.(socketOwner); ok {
		if tcp := owner.Socket(); tcp != nil {
			c = tcp
		}
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		// Multipath TCP shows the state of its first path.
		protocol, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if err != nil || protocol != unix.IPPROTO_TCP {
			return
		}
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		reset = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return reset
}
