// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// seed reserves the target ports of our objects and Services. Of two objects with one target port
// the older keeps it. A Service counts only if its object is missing, so that the re-created object
// listens where the Service points: an upstream Service, or a target Service with EndpointSlices.
func (p *Ports) seed(own installation.Installation, objects []v1alpha1.BoundEndpoint, services []corev1.Service) {
	slices.SortFunc(objects, func(a, b v1alpha1.BoundEndpoint) int { return v1alpha1.CompareAge(&a, &b) })
	named := map[portKey]bool{}
	for i := range objects {
		for _, port := range objects[i].Spec.Ports {
			key := portKey{objects[i].Name, port.Port}
			named[key] = true
			p.reserve(key, port.TargetPort)
		}
	}
	for i := range services {
		hostname := services[i].Annotations[installation.AnnotationHostname]
		isAlias := services[i].Spec.Type == corev1.ServiceTypeExternalName // without target ports
		if hostname == "" || isAlias || !own.Owns(&services[i]) {
			continue
		}
		for _, port := range services[i].Spec.Ports {
			if key := (portKey{hostname, port.Port}); !named[key] {
				p.reserve(key, port.TargetPort.IntVal)
			}
		}
	}
}
