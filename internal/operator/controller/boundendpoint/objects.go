// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// Layout holds what Services contain besides the BoundEndpoint's data.
type Layout struct {
	Installation installation.Installation
	// ClusterDomain is the DNS domain of the cluster, such as cluster.local.
	ClusterDomain string
	installation.ForwarderPods
	// Anchors are the names of the roles and bindings that own Services.
	Anchors []string
	// Metadata is added to the Services.
	Metadata installation.ServiceMetadata
}

// upstreamName returns the name of the upstream Service: the projection id, or a name made of its
// hash if the id is not a valid Service name.
func upstreamName(projectionID string) string {
	if len(validation.IsDNS1035Label(projectionID)) == 0 {
		return projectionID
	}
	sum := sha256.Sum256([]byte(projectionID))
	return "id-" + hex.EncodeToString(sum[:16])
}

// upstream returns "<Service>.<operator namespace>" of the Service through which pods reach the
// forwarders, or whose addresses they use.
func (l Layout) upstream(b *v1alpha1.BoundEndpoint, p v1alpha1.Projection) string {
	if p == v1alpha1.ProjectionEndpointSlice {
		return l.ForwarderService + "." + l.Installation.Namespace
	}
	return upstreamName(b.Spec.ProjectionID) + "." + l.Installation.Namespace
}

// upstreamService returns the desired ClusterIP Service, which selects the forwarders.
func (l Layout) upstreamService(b *v1alpha1.BoundEndpoint, owners []metav1.OwnerReference) *corev1.Service {
	s := l.newService(b, l.Installation.Namespace, upstreamName(b.Spec.ProjectionID), owners)
	s.Annotations[installation.AnnotationProjectionID] = b.Spec.ProjectionID
	s.Spec = corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeClusterIP,
		Selector:              l.PodLabels(),
		Ports:                 servicePorts(b, func(p v1alpha1.BoundPort) int32 { return p.TargetPort }),
		SessionAffinity:       corev1.ServiceAffinityNone,
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		IPFamilyPolicy:        new(corev1.IPFamilyPolicyPreferDualStack),
	}
	if recordedProjection(b) == v1alpha1.ProjectionExternalName {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = b.Status.ClusterIP, slices.Clone(b.Status.ClusterIPs)
	}
	return s
}

// transitionService returns the desired ClusterIP Service that has an address while the projection
// changes, and selects the forwarders. The API server chooses the address.
func (l Layout) transitionService(b *v1alpha1.BoundEndpoint, owners []metav1.OwnerReference) *corev1.Service {
	s := l.upstreamService(b, owners)
	sum := sha256.Sum256([]byte(b.Name))
	s.Name = "transition-" + hex.EncodeToString(sum[:16])
	l.Installation.Mark(s)
	delete(s.Annotations, installation.AnnotationProjectionID)
	setAddresses(s, nil)
	return s
}

// setAddresses lets a Service ask for addresses; none lets the API server choose.
func setAddresses(s *corev1.Service, addresses []string) {
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "", slices.Clone(addresses)
	if len(addresses) > 0 {
		s.Spec.ClusterIP = addresses[0]
	}
}

// targetService returns the desired ExternalName Service, which pods call.
func (l Layout) targetService(b *v1alpha1.BoundEndpoint, owners []metav1.OwnerReference) *corev1.Service {
	s := l.newService(b, b.Spec.Namespace, b.Spec.Service, owners)
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName,
		ExternalName: fmt.Sprintf("%s.%s.svc.%s", upstreamName(b.Spec.ProjectionID), l.Installation.Namespace,
			l.ClusterDomain),
		Ports:           servicePorts(b, func(p v1alpha1.BoundPort) int32 { return p.Port }),
		SessionAffinity: corev1.ServiceAffinityNone,
	}
	return s
}

func (l Layout) newService(
	b *v1alpha1.BoundEndpoint, namespace, name string, owners []metav1.OwnerReference,
) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace:       namespace,
		Name:            name,
		Annotations:     map[string]string{installation.AnnotationHostname: b.Name},
		OwnerReferences: owners,
	}}
	added := installation.ServiceMetadata{Labels: map[string]string{}, Annotations: l.Metadata.Annotations}
	maps.Copy(added.Labels, b.Spec.ServiceLabels)
	maps.Copy(added.Labels, l.Metadata.Labels)
	added.Add(s, namespace != l.Installation.Namespace)
	l.Installation.Mark(s)
	return s
}

func servicePorts(b *v1alpha1.BoundEndpoint, targetPort func(v1alpha1.BoundPort) int32) []corev1.ServicePort {
	var ports []corev1.ServicePort
	for _, p := range b.Spec.Ports {
		if p.State == v1alpha1.StateReleased {
			continue
		}
		kind := p.Scheme
		if p.AppProtocol == v1alpha1.AppProtocolH2C {
			kind = "http2"
		}
		ports = append(ports, corev1.ServicePort{
			Name:        fmt.Sprintf("%s-%d", kind, p.Port), // as Istio reads it
			Protocol:    corev1.ProtocolTCP,
			AppProtocol: new(cmp.Or(p.AppProtocol, p.Scheme)),
			Port:        p.Port,
			TargetPort:  intstr.FromInt32(targetPort(p)),
		})
	}
	return ports
}

// keepPortNames gives the ports of http URLs the names that the live ones have. A port that becomes
// HTTP/2, or HTTP/1.1 again, changes its application protocol only: kube-proxy finds endpoints by
// the port's name, so that connections would be refused while Service and slices differ, and
// Ingresses may refer to the name.
func keepPortNames(desired, live []corev1.ServicePort) {
	for i, p := range desired {
		names := []string{fmt.Sprintf("http-%d", p.Port), fmt.Sprintf("http2-%d", p.Port)}
		for _, l := range live {
			if l.Port == p.Port && slices.Contains(names, l.Name) && slices.Contains(names, p.Name) {
				desired[i].Name = l.Name
			}
		}
	}
}

// slicedService returns the desired target Service of projection endpointSlice. It has no selector:
// the slices lead to the forwarders.
func (l Layout) slicedService(b *v1alpha1.BoundEndpoint, owners []metav1.OwnerReference) *corev1.Service {
	s := l.newService(b, b.Spec.Namespace, b.Spec.Service, owners)
	s.Spec = corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeClusterIP,
		Ports:                 servicePorts(b, func(p v1alpha1.BoundPort) int32 { return p.TargetPort }),
		SessionAffinity:       corev1.ServiceAffinityNone,
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		IPFamilyPolicy:        new(corev1.IPFamilyPolicyPreferDualStack),
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
				UID: target.UID, BlockOwnerDeletion: new(false)}},
		},
		AddressType: family,
		Endpoints:   endpoints,
	}
	ports := servicePorts(b, func(p v1alpha1.BoundPort) int32 { return p.TargetPort })
	keepPortNames(ports, target.Spec.Ports)
	for _, p := range ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol),
			Port: new(p.TargetPort.IntVal), AppProtocol: p.AppProtocol})
	}
	l.Installation.Mark(s)
	return s
}
