// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// Target is a port of a Service as EndpointSlices have it.
type Target struct {
	PortName string            // of the Service's port and of the slices'; "" for an only port
	Families []corev1.IPFamily // those of the Service, preferred first; empty: not known
	Ref      Ref
}

// Resolve finds the Ref's port in its Service, nil where there is none.
func (r Ref) Resolve(service *corev1.Service) (Target, *status.Problem) {
	problem := func(reason, format string, args ...any) (Target, *status.Problem) {
		return Target{}, status.Problemf(reason, "Service %s %s", r.Service, fmt.Sprintf(format, args...))
	}
	if service == nil {
		return Target{}, status.Problemf(v1alpha1.ReasonUpstreamNotFound, path.NoService, r.Service)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return problem(v1alpha1.ReasonUnsupportedService, "is of type ExternalName and has no endpoints in this "+
			"cluster: name a Service with endpoints")
	}
	if len(service.Spec.Ports) == 0 {
		return problem(v1alpha1.ReasonUnsupportedService, "has no ports: give it port %d", r.Port)
	}
	var tcp []string
	for _, p := range service.Spec.Ports {
		if p.Protocol != corev1.ProtocolTCP && p.Protocol != "" {
			continue
		}
		if p.Port == r.Port {
			return Target{PortName: p.Name, Families: service.Spec.IPFamilies, Ref: r}, nil
		}
		tcp = append(tcp, strconv.Itoa(int(p.Port)))
	}
	if len(tcp) == 0 {
		return problem(v1alpha1.ReasonUnsupportedService, "has no TCP port, and others cannot be exported")
	}
	return problem(v1alpha1.ReasonPortNotFound, "has no TCP port %d; it has %s", r.Port,
		strings.Join(slices.Compact(tcp), ", "))
}
