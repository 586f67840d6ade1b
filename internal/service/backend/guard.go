// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrForbidden reports an address that tenants must not make the service connect to. Its text names
// the address: it is for logs, not for tenants.
var ErrForbidden = errors.New("address not allowed")

// connectTimeout is the default of Guard.Timeout.
const connectTimeout = 5 * time.Second

// Guard connects to addresses that tenants configure. Each address is checked when it is about to
// be connected to, after names are resolved, so that a DNS name cannot change its meaning after the
// check. It is safe for concurrent use.
type Guard struct {
	Allow    []Allowed      // permitted non-public addresses
	Deny     []netip.Prefix // forbidden addresses, even where Allow contains them
	Flag     string         // name of the flag that sets Allow, for error messages; default --static-allow
	Timeout  time.Duration  // for the name's lookup and the connect together; default 5 s
	Resolver *net.Resolver  // nil = the system's
}

// Dial connects to a host:port over tcp, tcp4 or tcp6. Of a name's addresses both families are
// tried as in RFC 8305, forbidden ones left out. ErrForbidden when none was left and there was no
// other error.
func (g *Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, fmt.Errorf("dialing %q: network %q: %w", address, network, ErrForbidden)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialing a static address: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("dialing %q: the port is not a number from 1 to 65535", address)
	}
	timeout := g.Timeout
	if timeout <= 0 {
		timeout = connectTimeout
	}
	d := net.Dialer{Timeout: timeout, Resolver: g.Resolver, Control: g.control}
	return d.DialContext(ctx, network, address)
}

// control checks the address of a socket that is about to connect.
func (g *Guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is none", ErrForbidden, address)
	}
	return g.Check(at)
}

// Check returns ErrForbidden, with the reason, for an address that must not be connected to.
func (g *Guard) Check(at netip.AddrPort) error {
	addr := at.Addr().Unmap()
	for _, p := range g.Deny {
		if p.Contains(addr.WithZone("")) || p.Contains(embeddedIPv4(addr)) {
			return fmt.Errorf("%w: %s is never connected to", ErrForbidden, addr)
		}
	}
	for _, a := range g.Allow {
		if a.contains(addr.WithZone(""), at.Port()) {
			return nil
		}
	}
	if what := forbiddenReason(addr); what != "" {
		return fmt.Errorf("%w: %s is %s; %s can permit it",
			ErrForbidden, netip.AddrPortFrom(addr, at.Port()), what, cmp.Or(g.Flag, "--static-allow"))
	}
	return nil
}

// CheckAddress returns ErrForbidden, with the reason, for a host:port that Dial refuses without
// resolving it: an IP address, or localhost. Other names are accepted here and checked when dialed.
func (g *Guard) CheckAddress(address string) error {
	if port, ok := strings.CutPrefix(strings.ToLower(address), "localhost:"); ok {
		address = "127.0.0.1:" + port
	}
	if _, err := netip.ParseAddrPort(address); err == nil {
		return g.control("", address, nil)
	}
	return nil
}
