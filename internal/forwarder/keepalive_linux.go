// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"cmp"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepAlive makes accepted connections ask whether their clients are still there. They inherit it
// from the port (tcp(7) of Linux), which spares each of them four system calls. Only a plain TCP
// socket hands it on, and pods speak no Multipath TCP. They also inherit that closing them is a
// reset: if this process is killed while they wait for a session, their clients shall not read an
// end.
func keepAlive(config *net.ListenConfig) {
	config.SetMultipathTCP(false)
	config.KeepAlive = -1 // Go sets none
	config.Control = func(_, _ string, c syscall.RawConn) error {
		var err error
		set := func(fd, level, option, value int) { err = cmp.Or(err, unix.SetsockoptInt(fd, level, option, value)) }
		refused := c.Control(func(fd uintptr) {
			set(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
			set(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle.Seconds()))
			set(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval.Seconds()))
			set(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes)
			err = cmp.Or(err, unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
		})
		return cmp.Or(refused, err)
	}
}
