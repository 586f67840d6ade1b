// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A replica announces the addresses of all. A client that lacks a leg dials one of them, and waits
// for directHeadStart before it also dials the service's name, where the balancer chooses: an
// address that leads nowhere delays the search by no more than that. It is not dialled again for
// failedAddressPause, or for refusedAddressPause if a server answered there.
const (
	directHeadStart     = time.Second
	failedAddressPause  = 10 * time.Minute
	refusedAddressPause = time.Minute
	lookupTimeout       = 2 * time.Second
)

// directDial is the dial of an announced address; at most one is under way.
type directDial struct {
	results   chan dialResult
	pending   bool
	headStart <-chan time.Time // end of the head start; nil: there is none
}

// startDirectDial dials one of the announced addresses of replicas that the session has no
// connection with, if there is one and none is being dialled.
func (k *connManager) startDirectDial(ctx context.Context) {
	if k.direct.pending {
		return
	}
	usable := k.client.addresses.usable(k.session.legs.unreached())
	if len(usable) == 0 {
		return
	}
	a := usable[rand.IntN(len(usable))]
	k.direct.pending, k.direct.headStart = true, time.After(directHeadStart)
	k.client.goroutines.Go(func() { k.direct.results <- k.dialDirect(ctx, a) })
}

func (k *connManager) handleDirectResult(r dialResult) {
	k.direct.pending, k.direct.headStart = false, nil
	if r.isNewLeg {
		k.fruitless = 0
	}
	k.finishRotation(r)
	if r.err != nil {
		k.client.cfg.Logger.Debug("dialing a replica at its address", "session", k.session.ID(), "error", r.err)
	}
}

// dialDirect dials an announced address and serves the connection in the background, also if
// another replica than the announced one answers. An address that does not lead to its replica is
// paused.
func (k *connManager) dialDirect(ctx context.Context, a ReplicaAddress) dialResult {
	c := k.client
	r := dialResult{err: c.addresses.check(ctx, a.Address)}
	if r.err == nil {
		r = c.dialFurther(ctx, k.session, a.Address)
	}
	var refused *Error
	switch {
	case ctx.Err() != nil:
	case r.err == nil && r.replicaID != a.ID:
		c.addresses.pause(a, failedAddressPause)
		c.cfg.Logger.Warn("a replica's address leads to another one", "address", a.Address, "announced", a.ID,
			"answered", r.replicaID)
	case errors.As(r.err, &refused):
		c.addresses.pause(a, refusedAddressPause)
	case r.err != nil:
		c.addresses.pause(a, failedAddressPause)
	}
	return r
}

// announcedAddresses decides which of the addresses that replicas announce are dialled. It is safe
// for concurrent use.
type announcedAddresses struct {
	service string // the service's own address, host:port
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)

	mu     sync.Mutex
	failed map[ReplicaAddress]time.Time // end of the pause, by address that is not dialled
}

// pause makes usable skip an address for d.
func (n *announcedAddresses) pause(a ReplicaAddress, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(n.failed, func(_ ReplicaAddress, until time.Time) bool { return !now.Before(until) })
	n.failed[a] = now.Add(d)
}

// retry ends all pauses.
func (n *announcedAddresses) retry() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.failed)
}

// usable returns the addresses that are not paused.
func (n *announcedAddresses) usable(all []ReplicaAddress) []ReplicaAddress {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(all, func(a ReplicaAddress) bool { return now.Before(n.failed[a]) })
}

// check refuses an announced address that is, or resolves to, one that CheckReplicaIP
// refuses. Loopback is admitted where the service itself is reached at loopback. A name that does
// not resolve here passes: a proxy may know it.
func (n *announcedAddresses) check(ctx context.Context, address string) error {
	ips, err := n.resolve(ctx, address)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		err := CheckReplicaIP(ip)
		if errors.Is(err, errLoopback) && n.isServiceLoopback(ctx) {
			continue
		}
		if err != nil {
			return fmt.Errorf("the replica's address %s is not dialled: %s %w", address, ip, err)
		}
	}
	return nil
}

// resolve returns the IP addresses of the host of a host:port; none if the name is unknown here.
func (n *announcedAddresses) resolve(ctx context.Context, address string) ([]netip.Addr, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is not HOST:PORT: %w", address, err)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := n.lookup(ctx, host)
	if err != nil {
		return nil, nil //nolint:nilerr // the dial finds out
	}
	return ips, nil
}

// isServiceLoopback reports whether the service's own address is a loopback address.
func (n *announcedAddresses) isServiceLoopback(ctx context.Context) bool {
	ips, err := n.resolve(ctx, n.service)
	return err == nil && len(ips) > 0 &&
		!slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !ip.Unmap().IsLoopback() })
}

func lookupIP(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
