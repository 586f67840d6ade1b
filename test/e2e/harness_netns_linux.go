// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netNS is the network namespace of a process. It is held by a descriptor, so the process number is
// used only once.
type netNS struct{ file *os.File }

func openNetNS(pid int) (*netNS, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("opening the node's network: %w", err)
	}
	return &netNS{f}, nil
}

// dial dials an address from inside the namespace.
func (n *netNS) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return openSocketIn(n, addr, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, addr) })
}

// listen listens on an address inside the namespace.
func (n *netNS) listen(ctx context.Context, addr string) (net.Listener, error) {
	return openSocketIn(n, addr, func() (net.Listener, error) { return (&net.ListenConfig{}).Listen(ctx, "tcp", addr) })
}

// openSocketIn calls open on a thread inside the namespace, while the caller stays outside: a
// socket belongs to the namespace of the thread that makes it.
func openSocketIn[T any](n *netNS, addr string, open func() (T, error)) (socket T, err error) {
	// A name would be looked up, and several addresses tried, on threads that are outside.
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return socket, fmt.Errorf("%s in the node's network: want an address and a port: %w", addr, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err = unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("entering the node's network: %w", err)
			return
		}
		socket, err = open()
	}()
	<-done
	return socket, err
}
