// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// TestAddressesOf_NeverDialed checks the addresses that are not dialed whatever the rules are.
func TestAddressesOf_NeverDialed(t *testing.T) {
	t.Parallel()
	for address, dialed := range map[string]bool{
		"10.1.0.5": true, "fd00::5": true, "192.0.2.1": true, "::ffff:10.1.0.5": true,
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "::ffff:127.0.0.1": false,
		"169.254.169.254": false, "::ffff:169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false,
		"fd00::5%eth0": false, "0.0.0.0": false, "::": false, "::ffff:0.0.0.0": false,
		"224.0.0.1": false, "239.1.2.3": false, "ff02::1": false, "ff05::2": false, "255.255.255.255": false,
		"localhost": false, "010.1.0.5": false, "": false,
	} {
		family := discoveryv1.AddressTypeIPv4
		if strings.Contains(address, ":") {
			family = discoveryv1.AddressTypeIPv6
		}
		for _, rules := range []Rules{{CrossNamespace: true}, {}} {
			s := slice(family, "web", 80, ready(address))
			s.Labels = map[string]string{discoveryv1.LabelManagedBy: SliceController}
			found := rules.addressesOf(Target{PortName: "web"}, []discoveryv1.EndpointSlice{s})
			if got := len(found.Usable()) == 1; got != dialed || (found.Unused == "") != dialed {
				t.Errorf("%q: dialed: %t, %q", address, got, found.Unused)
			}
		}
	}
}

// TestLookup_HandMadeSlices checks that addresses that a user wrote count only across namespaces.
func TestLookup_HandMadeSlices(t *testing.T) {
	t.Parallel()
	ofPods, byHand := slice(discoveryv1.AddressTypeIPv4, "web", 80, ready("10.1.0.5")),
		slice(discoveryv1.AddressTypeIPv4, "web", 80, ready("10.1.0.66"))
	ofPods.Name, byHand.Name = "of-pods", "by-hand"
	ofPods.Labels = map[string]string{discoveryv1.LabelManagedBy: SliceController}
	for name, labels := range map[string]map[string]string{"none": nil, "another controller": {
		discoveryv1.LabelManagedBy: "endpointslicemirroring-controller.k8s.io"}} {
		byHand.Labels = labels
		both := []discoveryv1.EndpointSlice{byHand, ofPods}
		found := (Rules{}).addressesOf(Target{PortName: "web"}, both)
		if len(found.Usable()) != 1 || found.Usable()[0].String() != "10.1.0.5:80" ||
			!strings.Contains(found.ReasonOf(apiRef).Message,
				"EndpointSlice by-hand is not of Kubernetes' own controller") {
			t.Errorf("label %s: %+v", name, found)
		}
		if found := (Rules{CrossNamespace: true}).addressesOf(Target{PortName: "web"}, both); len(found.Usable()) != 2 {
			t.Errorf("label %s, across namespaces: %+v", name, found)
		}
	}

	selected := &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "api"}}}
	for name, tt := range map[string]struct {
		rules   Rules
		service *corev1.Service
		refused bool
	}{
		"a selector":                     {Rules{}, selected, false},
		"no selector":                    {Rules{}, &corev1.Service{}, true},
		"no selector, across namespaces": {Rules{CrossNamespace: true}, &corev1.Service{}, false},
		"an empty selector selects no pod": {Rules{},
			&corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{}}}, true},
	} {
		p := tt.rules.checkService(tt.service, apiRef.Service)
		if (p != nil) != tt.refused || p != nil && (p.Reason != v1alpha1.ReasonUpstreamNotAllowed ||
			!strings.Contains(p.Message, "demo/api") || !strings.Contains(p.Message, "export.crossNamespace")) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
