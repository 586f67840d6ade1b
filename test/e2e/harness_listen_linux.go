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

// listenerIn listens inside the network namespace of a process, while the caller stays outside, as
// dialerIn dials.
func listenerIn(pid int) (func(ctx context.Context, addr string) (net.Listener, error), error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("opening the node's network: %w", err)
	}
	return func(ctx context.Context, addr string) (net.Listener, error) {
		if _, err := netip.ParseAddrPort(addr); err != nil {
			return nil, fmt.Errorf("listening on %s in the node's network: want an address and a port: %w", addr, err)
		}
		type result struct {
			l   net.Listener
			err error
		}
		listened := make(chan result, 1)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				listened <- result{err: fmt.Errorf("entering the node's network: %w", err)}
				return
			}
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
			listened <- result{l, err}
		}()
		r := <-listened
		return r.l, r.err
	}, nil
}
