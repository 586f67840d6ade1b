// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Addresses are where a Target can be dialed.
type Addresses struct {
	// Ready are the addresses that are ready, in the order of the Target's families.
	Ready []netip.AddrPort
	// Terminating are those that still serve although they terminate: for use when none is ready.
	Terminating []netip.AddrPort
	// Unused is why an address of a slice is not among them; "" if all are, or for several reasons
	// the first.
	Unused string
}

// Usable returns what may be dialed: ready addresses, or where there are none, terminating ones.
func (a Addresses) Usable() []netip.AddrPort {
	if len(a.Ready) > 0 {
		return a.Ready
	}
	return a.Terminating
}

// addressesOf returns the addresses of the Target in the EndpointSlices of its Service that the
// rules admit. A Service's port and its slices' have the same name; their numbers are those of the
// pods.
func (rules Rules) addressesOf(t Target, endpointSlices []discoveryv1.EndpointSlice) Addresses {
	var found Addresses
	seen := map[netip.AddrPort]bool{}
	for _, family := range t.families() {
		for i := range endpointSlices {
			s := &endpointSlices[i]
			if string(s.AddressType) != string(family) {
				continue
			}
			port := t.portOf(s)
			if port == 0 {
				continue
			}
			if why := rules.checkSlice(s); why != "" {
				found.Unused = cmp.Or(found.Unused, why)
				continue
			}
			for j := range s.Endpoints {
				found.add(&s.Endpoints[j], port, seen)
			}
		}
	}
	return found
}

// families returns both address families, the Service's preferred one first.
func (t Target) families() []corev1.IPFamily {
	if len(t.Families) > 0 && t.Families[0] == corev1.IPv6Protocol {
		return []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

// portOf returns the number of the Target's port in the slice, 0 if it has none.
func (t Target) portOf(s *discoveryv1.EndpointSlice) uint16 {
	i := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
		return p.Port != nil && (p.Name == nil && t.PortName == "" || p.Name != nil && *p.Name == t.PortName) &&
			(p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP)
	})
	if i < 0 || *s.Ports[i].Port < 1 || *s.Ports[i].Port > 65535 {
		return 0
	}
	return uint16(*s.Ports[i].Port)
}

func (a *Addresses) add(e *discoveryv1.Endpoint, port uint16, seen map[netip.AddrPort]bool) {
	isTrue := func(b *bool, unset bool) bool {
		if b == nil {
			return unset
		}
		return *b
	}
	ready := isTrue(e.Conditions.Ready, true)
	// Only the first address counts, as for kube-proxy: further ones are the same endpoint.
	if len(e.Addresses) == 0 || !ready && !isTrue(e.Conditions.Serving, false) {
		return
	}
	ip, err := netip.ParseAddr(e.Addresses[0])
	address := netip.AddrPortFrom(ip.Unmap(), port)
	if err != nil || !isDialable(ip) {
		a.Unused = cmp.Or(a.Unused, fmt.Sprintf("the address %q is not one of a pod", account.Shorten(e.Addresses[0])))
		return
	}
	if seen[address] {
		return
	}
	seen[address] = true
	switch {
	case ready:
		a.Ready = append(a.Ready, address)
	case isTrue(e.Conditions.Terminating, false):
		a.Terminating = append(a.Terminating, address)
	}
}
