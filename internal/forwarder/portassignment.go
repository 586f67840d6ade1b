// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// owner is who a port belongs to: one URL. A listener lives as long as its port has the same owner.
type owner struct {
	scheme string // http or tcp
	host   string // <service>.<namespace>
	port   int    // the URL's port, which pods connect to
}

func (o owner) url() string {
	return account.EndpointURL{Scheme: o.scheme, Host: o.host, Port: o.port}.String()
}

// portAssignment is one port's owner, and the endpoint that its streams name: the first of those with this
// URL; the edge chooses among a pool. Without any, the port is served as an endpoint whose agent is
// offline.
type portAssignment struct {
	owner
	endpointID string
}

// assignPorts says which ports to listen on, and for whom. Should several objects hold one port, the
// oldest has it, even when it is only at rest there: a pod may still have an old connection in
// mind. A port at rest has no listener.
func assignPorts(objects []*v1alpha1.BoundEndpoint) map[int]portAssignment {
	held := make(map[int32]struct{}, len(objects))
	result := make(map[int]portAssignment, len(objects))
	for _, object := range slices.SortedFunc(slices.Values(objects), compareAge) {
		for _, port := range object.Spec.Ports {
			if _, taken := held[port.TargetPort]; taken {
				continue
			}
			held[port.TargetPort] = struct{}{}
			if object.Spec.State == v1alpha1.StateReleased || port.State == v1alpha1.StateReleased {
				continue
			}
			o := owner{scheme: port.Scheme, host: object.Spec.Service + "." + object.Spec.Namespace, port: int(port.Port)}
			result[int(port.TargetPort)] = portAssignment{owner: o, endpointID: firstEndpointID(o, object.Spec.Endpoints)}
		}
	}
	return result
}

// compareAge orders by age; objects of the same second by name, so that all forwarders and the manager
// agree.
func compareAge(a, b *v1alpha1.BoundEndpoint) int {
	return cmp.Or(
		a.CreationTimestamp.Truncate(time.Second).Compare(b.CreationTimestamp.Truncate(time.Second)),
		cmp.Compare(a.Name, b.Name))
}

// firstEndpointID returns the id of the first endpoint with the owner's URL, or "".
func firstEndpointID(o owner, refs []v1alpha1.EndpointRef) string {
	for _, ref := range refs {
		u, err := account.ParseEndpointURL(ref.URL)
		if err == nil && u.Scheme == o.scheme && u.Host == o.host && u.Port == o.port {
			return ref.ID
		}
	}
	return ""
}
