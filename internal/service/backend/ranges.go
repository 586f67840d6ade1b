// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import "net/netip"

// specialRange is a range of addresses that are not public.
type specialRange struct {
	prefix netip.Prefix
	name   string
}

func specialRanges(rows ...string) []specialRange {
	out := make([]specialRange, 0, len(rows)/2)
	for i := 0; i < len(rows); i += 2 {
		out = append(out, specialRange{netip.MustParsePrefix(rows[i]), rows[i+1]})
	}
	return out
}

// reserved4 are IANA's special-purpose registries, and addresses by which clouds tell a machine its
// credentials.
var reserved4 = specialRanges(
	"0.0.0.0/8", "this network",
	"10.0.0.0/8", "private",
	"100.64.0.0/10", "of a carrier's NAT",
	"127.0.0.0/8", "loopback",
	"168.63.129.16/32", "a cloud's metadata service",
	"169.254.0.0/16", "link-local",
	"172.16.0.0/12", "private",
	"192.0.0.0/24", "reserved for protocols",
	"192.0.2.0/24", "for documentation",
	"192.88.99.0/24", "a 6to4 relay",
	"192.168.0.0/16", "private",
	"198.18.0.0/15", "for benchmarks",
	"198.51.100.0/24", "for documentation",
	"203.0.113.0/24", "for documentation",
	"224.0.0.0/4", "multicast",
	"240.0.0.0/4", "reserved or broadcast",
)

// reserved6 are the ranges of 2000::/3 that are not public.
var reserved6 = specialRanges(
	"2001::/23", "reserved for protocols, or Teredo",
	"2001:db8::/32", "for documentation",
	"3fff::/20", "for documentation",
)

var (
	global6   = netip.MustParsePrefix("2000::/3")
	sixToFour = netip.MustParsePrefix("2002::/16")
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
)

// forbiddenReason returns what a non-public address is; "" for a public one.
func forbiddenReason(addr netip.Addr) string {
	if !addr.IsValid() || addr.Zone() != "" {
		return "no address, or one of a single link"
	}
	if addr.Is4() {
		return rangeName(reserved4, addr)
	}
	switch inner := embeddedIPv4(addr); {
	case inner.IsValid():
		return embeddedReason(inner)
	case !global6.Contains(addr):
		return "not a public unicast address"
	}
	return rangeName(reserved6, addr)
}

// embeddedIPv4 returns the IPv4 address to which a gateway translates the IPv6 one; the zero Addr
// where there is none.
func embeddedIPv4(addr netip.Addr) netip.Addr {
	raw := addr.As16()
	switch {
	case nat64.Contains(addr):
		return netip.AddrFrom4([4]byte(raw[12:]))
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(raw[2:6]))
	}
	return netip.Addr{}
}

func embeddedReason(addr netip.Addr) string {
	if what := rangeName(reserved4, addr); what != "" {
		return "another form of " + addr.String() + ", " + what
	}
	return ""
}

func rangeName(list []specialRange, addr netip.Addr) string {
	for _, r := range list {
		if r.prefix.Contains(addr) {
			return r.name
		}
	}
	return ""
}
