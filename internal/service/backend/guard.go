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

	"github.com/fairlead-dev/fairlead/internal/account"
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

// Allowed is a range of addresses that Guard permits.
type Allowed struct {
	Prefix netip.Prefix
	Port   uint16 // 0 admits every port
}

// contains reports whether a admits the address with the port.
func (a Allowed) contains(addr netip.Addr, port uint16) bool {
	return a.Prefix.Contains(addr) && (a.Port == 0 || a.Port == port)
}

// ParseAllow parses CIDRs and addresses for Guard.Allow, each with an optional :PORT, before which
// IPv6 stands in brackets. For anything else it returns CodeInvalid with the field, which is the
// flag's name.
func ParseAllow(field string, list []string) ([]Allowed, error) {
	var allow []Allowed
	for _, text := range list {
		a, ok := parseAllowed(text)
		if !ok {
			return nil, account.Invalid(field, text,
				"must be an address or a range of addresses, such as 10.1.2.0/24 or fd00:1::/64, "+
					"and may have one port, such as 10.1.2.3:5432 or [fd00:1::/64]:443")
		}
		allow = append(allow, a)
	}
	return allow, nil
}

func parseAllowed(text string) (Allowed, bool) {
	if p, ok := parseRange(text); ok {
		return Allowed{Prefix: p}, true
	}
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return Allowed{}, false
	}
	p, ok := parseRange(host)
	port, err := strconv.ParseUint(digits, 10, 16)
	bracketed := strings.HasPrefix(text, "[")
	if !ok || err != nil || port == 0 || strconv.FormatUint(port, 10) != digits || bracketed != p.Addr().Is6() {
		return Allowed{}, false
	}
	return Allowed{Prefix: p, Port: uint16(port)}, true
}

// parseRange parses a CIDR or an address, except IPv4-mapped IPv6 and addresses with a zone.
func parseRange(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if addr, addrErr := netip.ParseAddr(text); err != nil && addrErr == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return p.Masked(), err == nil && !p.Addr().Is4In6()
}
