// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// ReplicaAddress is where clients reach one replica past the balancer. The TLS name stays the
// service's.
type ReplicaAddress struct {
	ID      string `json:"id"`
	Address string `json:"address"` // host:port
}

const (
	maxReplicaAddresses = 32  // addresses of one announcement; clients skip the rest
	maxReplicaID        = 64  // bytes
	maxAddress          = 264 // bytes: a host name of 255, a colon and a port fit
)

// isBounded reports whether an announced address can be one.
func (a ReplicaAddress) isBounded() bool {
	return a.ID != "" && len(a.ID) <= maxReplicaID && a.Address != "" && len(a.Address) <= maxAddress
}

// boundedAddresses returns the addresses of an announcement that are within the limits.
func boundedAddresses(all []ReplicaAddress) []ReplicaAddress {
	all = all[:min(len(all), maxReplicaAddresses)]
	return slices.DeleteFunc(slices.Clone(all), func(a ReplicaAddress) bool { return !a.isBounded() })
}

// announcedTo returns the addresses that clients of the role are sent. Agents run on machines
// anywhere, where a private address is another host's; forwarders get all.
func announcedTo(role Role, all []ReplicaAddress) []ReplicaAddress {
	all = boundedAddresses(all)
	if role != RoleForwarder {
		all = slices.DeleteFunc(all, func(a ReplicaAddress) bool { return a.isPrivate() })
	}
	return all
}

// sharedAddressSpace is that of carrier-grade NAT (RFC 6598).
var sharedAddressSpace = netip.MustParsePrefix("100.64.0.0/10")

// isPrivate reports whether the host is an IP address that means different hosts in different
// networks. Loopback is not: clients refuse it, unless they reach the service there.
func (a ReplicaAddress) isPrivate() bool {
	ip, ok := literalIP(a.Address)
	return ok && (ip.IsPrivate() || sharedAddressSpace.Contains(ip))
}

// literalIP returns the IP address that is the host of a host:port.
func literalIP(address string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(host)
	return ip.Unmap(), err == nil
}

var errLoopback = errors.New("is a loopback address")

// CheckReplicaIP returns why no client may dial a replica at the address, or nil. Loopback is for
// clients on the same machine.
func CheckReplicaIP(ip netip.Addr) error {
	ip = ip.Unmap()
	switch {
	case ip.IsLoopback():
		return errLoopback
	case ip.IsUnspecified():
		return errors.New("is the unspecified address")
	case ip.IsLinkLocalUnicast():
		return errors.New("is a link-local address")
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("is a multicast or broadcast address")
	case ip.Zone() != "":
		return fmt.Errorf("has the zone %q, which is of one machine", ip.Zone())
	}
	return nil
}
