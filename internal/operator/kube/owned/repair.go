// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// RepairedService returns live with the desired content, and whether that is a change. The spec is
// replaced except for the addresses that the cluster assigned; other labels and annotations stay. Of
// two desired addresses a Service without one gets the first, and one that has that the second.
func RepairedService(live, desired *corev1.Service) (*corev1.Service, bool) {
	next := live.DeepCopy()
	mergeMetadata(next, desired)
	next.Spec = *desired.Spec.DeepCopy()
	if desired.Spec.Type == corev1.ServiceTypeClusterIP && live.Spec.ClusterIP != "" &&
		live.Spec.ClusterIP != corev1.ClusterIPNone {
		next.Spec.ClusterIP, next.Spec.ClusterIPs, next.Spec.IPFamilies = live.Spec.ClusterIP, live.Spec.ClusterIPs,
			live.Spec.IPFamilies
		if previous := desired.Spec.ClusterIPs; len(previous) > len(live.Spec.ClusterIPs) &&
			previous[0] == live.Spec.ClusterIP {
			next.Spec.ClusterIPs, next.Spec.IPFamilies = previous, ipFamilies(previous) // live lost the second family
		}
	} else {
		requestOneAddress(&next.Spec)
	}
	return next, !equality.Semantic.DeepEqual(live, next)
}

// requestOneAddress reduces the addresses that a spec requests to the first. The API server frees
// those of a deleted Service one after another, and of two that are requested it keeps the free one
// allocated for a minute, to no Service, when the other is not free.
func requestOneAddress(spec *corev1.ServiceSpec) {
	if len(spec.ClusterIPs) > 1 {
		spec.ClusterIPs, spec.IPFamilyPolicy = spec.ClusterIPs[:1], ptr.To(corev1.IPFamilyPolicySingleStack)
	}
}

func ipFamilies(addresses []string) []corev1.IPFamily {
	var all []corev1.IPFamily
	for _, a := range addresses {
		family := corev1.IPv4Protocol
		if utilnet.IsIPv6String(a) {
			family = corev1.IPv6Protocol
		}
		all = append(all, family)
	}
	return all
}

// repairedSlice returns live with the desired content, and whether that is a change. Other labels
// and annotations stay, but none that excludes the slice from kube-proxy or marks a standby.
func repairedSlice(live, desired *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, bool) {
	next := live.DeepCopy()
	delete(next.Annotations, installation.AnnotationStandby)
	mergeMetadata(next, desired)
	delete(next.Labels, corev1.IsHeadlessService)
	next.Endpoints, next.Ports = desired.Endpoints, desired.Ports
	return next, !equality.Semantic.DeepEqual(live, next)
}

// mergeMetadata sets the owners, labels and annotations of desired in o. Other labels and
// annotations stay.
func mergeMetadata(o, desired metav1.Object) {
	merge := func(theirs, ours map[string]string) map[string]string {
		all := map[string]string{}
		maps.Copy(all, theirs)
		maps.Copy(all, ours)
		return all
	}
	o.SetOwnerReferences(desired.GetOwnerReferences())
	o.SetLabels(merge(o.GetLabels(), desired.GetLabels()))
	o.SetAnnotations(merge(o.GetAnnotations(), desired.GetAnnotations()))
}
