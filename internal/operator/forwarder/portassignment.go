// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"slices"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
)

// portAssignment is the URL that a target port serves and the endpoint that its streams name: the
// first one with this URL; the edge chooses among a pool. Without an endpoint the port is served as
// one whose agent is offline.
type portAssignment struct {
	account.EndpointURL
	endpointID string
}

// target returns what rules about callers select.
func (p *portAssignment) target() endpointaccess.Target {
	return endpointaccess.TargetOf(p.Host, p.Port)
}

// assignPorts returns the assignment of every port to listen on. If several objects have one port,
// it is the oldest one's, even if the port is released there: a pod may still have an old
// connection. A released port has no listener.
func assignPorts(objects []*v1alpha1.BoundEndpoint) map[int]portAssignment {
	assigned := make(map[int32]struct{}, len(objects))
	result := make(map[int]portAssignment, len(objects))
	for _, object := range slices.SortedFunc(slices.Values(objects), v1alpha1.CompareAge) {
		for _, port := range object.Spec.Ports {
			if _, taken := assigned[port.TargetPort]; taken {
				continue
			}
			assigned[port.TargetPort] = struct{}{}
			if object.Spec.State == v1alpha1.StateReleased || port.State == v1alpha1.StateReleased {
				continue
			}
			u := account.EndpointURL{Scheme: port.Scheme, Host: object.Spec.Hostname(), Port: int(port.Port)}
			result[int(port.TargetPort)] = portAssignment{EndpointURL: u, endpointID: firstEndpointID(u, &object.Spec)}
		}
	}
	return result
}

// firstEndpointID returns the id of the first endpoint with the URL, or "".
func firstEndpointID(want account.EndpointURL, spec *v1alpha1.BoundEndpointSpec) string {
	binding := account.BindingKubernetes
	if spec.Cluster != "" {
		binding = account.BindingClusterset
	}
	for _, ref := range spec.Endpoints {
		if u, err := account.ParseBindingURL(binding, ref.URL); err == nil && u == want {
			return ref.ID
		}
	}
	return ""
}
