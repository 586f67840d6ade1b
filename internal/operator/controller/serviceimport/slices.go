// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// source is what a source cluster contributes to a ServiceImport.
type source struct {
	cluster string
	ports   []discoveryv1.EndpointPort
	// available reports whether the cluster can serve connections now.
	available bool
	// standby reports that it cannot, and that another cluster can.
	standby bool
}

// setStandby decides which sources are on standby.
func setStandby(sources []source) {
	available := slices.ContainsFunc(sources, func(s source) bool { return s.available && len(s.ports) > 0 })
	for i := range sources {
		sources[i].standby = available && !sources[i].available
	}
}

// endpointPorts returns the ports that forwarders listen for, with their target ports. A new port is
// among them once the forwarders have had time to listen. Until then, and while the BoundEndpoint
// changes, a port that the live slice has stays in it.
func endpointPorts(
	ports []account.ServiceExportPort, b *v1alpha1.BoundEndpoint, live []discoveryv1.EndpointPort,
) []discoveryv1.EndpointPort {
	var all []discoveryv1.EndpointPort
	for _, p := range ports {
		i := slices.IndexFunc(b.Spec.Ports, func(q v1alpha1.BoundPort) bool {
			return q.Port == p.Port && q.State != v1alpha1.StateReleased
		})
		if p.Protocol != string(corev1.ProtocolTCP) || i < 0 || b.Spec.State == v1alpha1.StateReleased {
			continue
		}
		port := discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(corev1.ProtocolTCP),
			Port: ptr.To(b.Spec.Ports[i].TargetPort), AppProtocol: orNil(p.AppProtocol)}
		listed := slices.ContainsFunc(live, func(q discoveryv1.EndpointPort) bool {
			return ptr.Deref(q.Name, "") == p.Name && ptr.Deref(q.Port, 0) == *port.Port
		})
		if listed || listening(b) {
			all = append(all, port)
		}
	}
	return all
}

// listening reports whether the forwarders listen for the present spec, or had the time to.
func listening(b *v1alpha1.BoundEndpoint) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	return b.Observed() && c != nil && c.ObservedGeneration == b.Generation
}

// available reports whether a carried port has an endpoint online, of those that the account has for
// the host. What is not known counts as available.
func available(host string, ports []account.ServiceExportPort, known bool, endpoints int, offline []string) bool {
	if !known {
		return true
	}
	return endpoints > 0 && slices.ContainsFunc(ports, func(p account.ServiceExportPort) bool {
		u := account.EndpointURL{Scheme: "tcp", Host: host, Port: int(p.Port)}
		return p.Protocol == string(corev1.ProtocolTCP) && !slices.Contains(offline, u.String())
	})
}

// families returns the types of addresses of a Service.
func families(s *corev1.Service) []discoveryv1.AddressType {
	var all []discoveryv1.AddressType
	for _, family := range s.Spec.IPFamilies {
		all = append(all, discoveryv1.AddressType(family))
	}
	return all
}

// sliceName returns the name of a source cluster's slice.
func sliceName(derived, cluster string, family discoveryv1.AddressType) string {
	return derived + "-" + cluster + "-" + strings.ToLower(string(family))
}

// endpointSlice returns the desired slice of a source cluster for the derived Service, which owns
// it.
func endpointSlice(
	own installation.Installation, name string, derived *corev1.Service, from source, family discoveryv1.AddressType,
	addresses []discoveryv1.Endpoint,
) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: derived.Namespace, Name: sliceName(derived.Name, from.cluster, family),
			Labels: map[string]string{discoveryv1.LabelServiceName: derived.Name,
				discoveryv1.LabelManagedBy:  installation.SliceManager,
				mcsv1beta1.LabelServiceName: name, mcsv1beta1.LabelSourceCluster: from.cluster},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: derived.Name,
				UID: derived.UID, BlockOwnerDeletion: ptr.To(false)}},
		},
		AddressType: family, Endpoints: endpoints(addresses, from.standby), Ports: from.ports,
	}
	own.Mark(s)
	if from.standby {
		s.Annotations[installation.AnnotationStandby] = "true"
	}
	return s
}

// endpoints returns the forwarders as endpoints; on standby none is ready, nor serves while it
// terminates.
func endpoints(addresses []discoveryv1.Endpoint, standby bool) []discoveryv1.Endpoint {
	all := slices.Clone(addresses)
	for i := range all {
		if standby {
			all[i].Conditions.Ready, all[i].Conditions.Serving = ptr.To(false), ptr.To(false)
		}
	}
	return all
}
