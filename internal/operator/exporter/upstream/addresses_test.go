// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

func slice(family discoveryv1.AddressType, portName string, number int32, endpoints ...discoveryv1.Endpoint,
) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{AddressType: family, Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{
		{Name: ptr.To("other"), Port: ptr.To[int32](9), Protocol: ptr.To(corev1.ProtocolTCP)},
		{Name: ptr.To(portName), Port: ptr.To(number), Protocol: ptr.To(corev1.ProtocolTCP)},
	}}
}

func endpoint(ready, serving, terminating *bool, addresses ...string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready,
		Serving: serving, Terminating: terminating}}
}

func ready(addresses ...string) discoveryv1.Endpoint {
	return endpoint(ptr.To(true), ptr.To(true), ptr.To(false), addresses...)
}

func notReady(address string) discoveryv1.Endpoint {
	return endpoint(ptr.To(false), ptr.To(false), ptr.To(false), address)
}

func terminating(address string) discoveryv1.Endpoint {
	return endpoint(ptr.To(false), ptr.To(true), ptr.To(true), address)
}

func addrPorts(texts ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, t := range texts {
		all = append(all, netip.MustParseAddrPort(t))
	}
	return all
}

func TestAddressesOf_Usable(t *testing.T) {
	t.Parallel()
	const v4, v6, fqdn = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN
	expectUsable(t, map[string]usable{
		"no slice": {Target{}, nil, nil},
		"a port that is named in pods has another number in each slice": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 8080, ready("10.0.0.1")),
				slice(v4, "web", 8081, ready("10.0.0.2"))},
			[]string{"10.0.0.1:8080", "10.0.0.2:8081"}},
		"ready is the default": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 80, endpoint(nil, nil, nil, "10.0.0.1"))},
			[]string{"10.0.0.1:80"}},
		"not ready": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 80, notReady("10.0.0.1"), ready("10.0.0.2"))},
			[]string{"10.0.0.2:80"}},
		"terminating beside ready": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 80, terminating("10.0.0.1"), ready("10.0.0.2"))},
			[]string{"10.0.0.2:80"}},
		"terminating, and nothing ready": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 80, terminating("10.0.0.1"), notReady("10.0.0.2"))},
			[]string{"10.0.0.1:80"}},
		"terminating and no longer serving": {Target{PortName: "web"}, []discoveryv1.EndpointSlice{slice(v4, "web", 80,
			endpoint(ptr.To(false), ptr.To(false), ptr.To(true), "10.0.0.1"))}, nil},
		"both families, IPv4 by default": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v6, "web", 80, ready("fd00::1")),
				slice(v4, "web", 80, ready("10.0.0.1"))},
			[]string{"10.0.0.1:80", "[fd00::1]:80"}},
		"both families, IPv6 preferred": {Target{PortName: "web", Families: []corev1.IPFamily{"IPv6", "IPv4"}},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 80, ready("10.0.0.1")),
				slice(v6, "web", 80, ready("fd00::1"))},
			[]string{"[fd00::1]:80", "10.0.0.1:80"}},
		"names": {Target{PortName: "web"}, []discoveryv1.EndpointSlice{slice(fqdn, "web", 80, ready("example.com"))},
			nil},
		"an endpoint in two slices": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 80, ready("10.0.0.1")),
				slice(v4, "web", 80, ready("10.0.0.1"))},
			[]string{"10.0.0.1:80"}},
		"no address": {Target{PortName: "web"}, []discoveryv1.EndpointSlice{slice(v4, "web", 80, ready())}, nil},
		"several of one": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "web", 80, ready("10.0.0.1", "10.0.0.2"))}, []string{"10.0.0.1:80"}},
		"a bad address": {Target{PortName: "web"}, []discoveryv1.EndpointSlice{slice(v4, "web", 80, ready("10.0.0"))},
			nil},
	})
}

func TestAddressesOf_Ports(t *testing.T) {
	t.Parallel()
	const v4 = discoveryv1.AddressTypeIPv4
	ofPort := func(p discoveryv1.EndpointPort) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{AddressType: v4, Endpoints: []discoveryv1.Endpoint{ready("10.0.0.1")},
			Ports: []discoveryv1.EndpointPort{p}}
	}
	expectUsable(t, map[string]usable{
		"another port": {Target{PortName: "web"},
			[]discoveryv1.EndpointSlice{slice(v4, "dns", 53, ready("10.0.0.1"))}, nil},
		"a port unnamed": {Target{},
			[]discoveryv1.EndpointSlice{ofPort(discoveryv1.EndpointPort{Port: ptr.To[int32](7)})},
			[]string{"10.0.0.1:7"}},
		"a port of UDP": {Target{},
			[]discoveryv1.EndpointSlice{
				ofPort(discoveryv1.EndpointPort{Port: ptr.To[int32](7), Protocol: ptr.To(corev1.ProtocolUDP)})}, nil},
		"no number": {Target{}, []discoveryv1.EndpointSlice{ofPort(discoveryv1.EndpointPort{})}, nil},
		"a number beyond": {Target{},
			[]discoveryv1.EndpointSlice{ofPort(discoveryv1.EndpointPort{Port: ptr.To[int32](70000)})}, nil},
	})
}

// usable is a case of the addresses that can be dialed.
type usable struct {
	target Target
	slices []discoveryv1.EndpointSlice
	want   []string
}

func expectUsable(t *testing.T, cases map[string]usable) {
	t.Helper()
	for name, tt := range cases {
		got := Rules{CrossNamespace: true}.addressesOf(tt.target, tt.slices).Usable()
		if !slices.Equal(got, addrPorts(tt.want...)) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
