// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clientlimit

import "net/netip"

// Key returns the client of an address: the IPv4 address (also of an IPv4-mapped IPv6 address) as a
// /32, or the /64 of an IPv6 address without its zone. The key of an invalid address is the zero
// Prefix, so that all callers without an address are one client.
func Key(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
