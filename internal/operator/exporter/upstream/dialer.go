// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxAttempts is how many addresses are tried for one connection.
	maxAttempts = 4
	// attemptTimeout is how long an address may take to answer while there are others to try.
	attemptTimeout = 2 * time.Second
)

// Dialer connects with Services. It is safe for concurrent use.
type Dialer struct {
	Cache client.Reader
	Rules Rules
	// Dial connects with an address; nil is a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	next atomic.Uint64
}

// DialContext connects with a Service by the address of a Ref. It is an agent.DialFunc.
func (d *Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	ref, ok := parseAddress(address)
	if !ok {
		return nil, fmt.Errorf("dialing %s: it is not the address of a Service", address)
	}
	return d.DialService(ctx, ref)
}

// DialService connects with one of the Service's addresses: each time another one first, and others
// when that fails.
func (d *Dialer) DialService(ctx context.Context, ref Ref) (net.Conn, error) {
	found, problem, err := d.Rules.Lookup(ctx, d.Cache, ref)
	if err != nil {
		return nil, err
	}
	if problem != nil {
		return nil, problem
	}
	usable := found.Usable()
	if len(usable) == 0 {
		return nil, fmt.Errorf("dialing Service %s: no endpoint of port %d is ready", ref.Service, ref.Port)
	}
	return d.dialAny(ctx, d.order(usable))
}

// order returns the addresses to try. It begins with another address of the preferred family each
// time; those of the other family follow.
func (d *Dialer) order(usable []netip.AddrPort) []netip.AddrPort {
	isOther := func(a netip.AddrPort) bool { return a.Addr().Is4() != usable[0].Addr().Is4() }
	split := slices.IndexFunc(usable, isOther)
	if split < 0 {
		split = len(usable)
	}
	preferred, others := usable[:split], usable[split:]
	start := int(d.next.Add(1) % uint64(len(preferred)))
	tried := slices.Concat(preferred[start:], preferred[:start])
	if len(others) > 0 { // one at least: the preferred family may have no route
		tried = append(tried[:min(len(tried), maxAttempts-1)], others[start%len(others)])
	}
	return tried[:min(len(tried), maxAttempts)]
}

// dialAny tries the addresses in turn. The last one gets the time that is left.
func (d *Dialer) dialAny(ctx context.Context, addresses []netip.AddrPort) (net.Conn, error) {
	dial := d.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var errs []error
	for i, address := range addresses {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if i < len(addresses)-1 {
			attempt, cancel = context.WithTimeout(ctx, attemptTimeout)
		}
		conn, err := dial(attempt, "tcp", address.String())
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}
