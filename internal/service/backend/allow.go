// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

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
