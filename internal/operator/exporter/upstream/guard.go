// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// A user who writes EndpointSlices chooses addresses that the exporter connects with from its own
// place in the network: pods of other namespaces, nodes, the API server (CVE-2021-25740). Without
// CrossNamespace only those count that Kubernetes' controller writes, of pods that a Service of
// the namespace selects.

// SliceController is how Kubernetes' controller of EndpointSlices marks its own.
const SliceController = "endpointslice-controller.k8s.io"

// checkService returns why the addresses of a Service are not used, or nil.
func (rules Rules) checkService(service *corev1.Service, ref Ref) *status.Problem {
	if rules.CrossNamespace || len(service.Spec.Selector) > 0 {
		return nil
	}
	return notAllowed("Service %s has no selector: its addresses are those that were written into its "+
		"EndpointSlices, which may lie outside of the namespace; give it a selector, or set export.crossNamespace",
		ref.Service)
}

// checkSlice returns why the addresses of a slice are not used, or "".
func (rules Rules) checkSlice(s *discoveryv1.EndpointSlice) string {
	if rules.CrossNamespace || s.Labels[discoveryv1.LabelManagedBy] == SliceController {
		return ""
	}
	return fmt.Sprintf("EndpointSlice %s is not of Kubernetes' own controller, and is used only with "+
		"export.crossNamespace", s.Name)
}

// isDialable reports whether an address can be a pod's: not one of the exporter's own machine or
// link, such as a cloud's metadata service, and not one of many machines.
func isDialable(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsValid() && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() &&
		ip != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && ip.Zone() == ""
}

// ReasonOf returns the reason of the condition UpstreamReady for a Service without addresses.
func (a Addresses) ReasonOf(ref Ref) *status.Problem {
	p := status.Problemf(v1alpha1.ReasonNoReadyEndpoints, path.NoReadyEndpoint+" for port %d", ref.Service,
		ref.Port)
	if a.Unused != "" {
		p.Message += "; " + a.Unused
	}
	return p
}
