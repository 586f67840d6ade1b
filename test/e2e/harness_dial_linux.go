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

// dialerIn dials from inside the network namespace of a process, while the caller stays outside: a
// socket belongs to the namespace of the thread that makes it. The namespace is held by a
// descriptor, so the process number is used only once.
func dialerIn(pid int) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("opening the node's network: %w", err)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// A name would be looked up, and several addresses tried, on threads that are outside.
		if _, err := netip.ParseAddrPort(addr); err != nil {
			return nil, fmt.Errorf("dialing %s in the node's network: want an address and a port: %w", addr, err)
		}
		type result struct {
			conn net.Conn
			err  error
		}
		dialed := make(chan result, 1)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				dialed <- result{err: fmt.Errorf("entering the node's network: %w", err)}
				return
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			dialed <- result{conn, err}
		}()
		r := <-dialed
		return r.conn, r.err
	}, nil
}
