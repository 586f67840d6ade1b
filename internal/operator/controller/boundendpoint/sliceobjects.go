// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// slicedService returns the desired target Service of projection endpointSlice. It has no selector:
// the slices lead to the forwarders.
func (l Layout) slicedService(b *v1alpha1.BoundEndpoint, owners []metav1.OwnerReference) *corev1.Service {
	s := l.newService(b, b.Spec.Namespace, b.Spec.Service, owners)
	s.Spec = corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeClusterIP,
		Ports:                 servicePorts(b, func(p v1alpha1.BoundPort) int32 { return p.TargetPort }),
		SessionAffinity:       corev1.ServiceAffinityNone,
		InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
		IPFamilyPolicy:        ptr.To(corev1.IPFamilyPolicyPreferDualStack),
	}
	if recordedProjection(b) == v1alpha1.ProjectionEndpointSlice {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = b.Status.ClusterIP, slices.Clone(b.Status.ClusterIPs)
	}
	return s
}

// endpointSlice returns the desired slice of one family for a target Service, which owns it. Its
// ports have the names of the Service's.
func (l Layout) endpointSlice(
	b *v1alpha1.BoundEndpoint, target *corev1.Service, family discoveryv1.AddressType,
	endpoints []discoveryv1.Endpoint,
) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Spec.Namespace,
			Name:      b.Spec.Service + "-fairlead-" + strings.ToLower(string(family)),
			Labels: map[string]string{discoveryv1.LabelServiceName: b.Spec.Service,
				discoveryv1.LabelManagedBy: installation.SliceManager},
			Annotations: map[string]string{installation.AnnotationHostname: b.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: target.Name,
				UID: target.UID, BlockOwnerDeletion: ptr.To(false)}},
		},
		AddressType: family,
		Endpoints:   endpoints,
	}
	for _, p := range servicePorts(b, func(p v1alpha1.BoundPort) int32 { return p.TargetPort }) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol),
			Port: ptr.To(p.TargetPort.IntVal), AppProtocol: p.AppProtocol})
	}
	l.Installation.Mark(s)
	return s
}
