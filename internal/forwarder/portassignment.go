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

// portAssignment is the URL that a target port serves and the endpoint that its streams name: the
// first one with this URL; the edge chooses among a pool. Without an endpoint the port is served as
// one whose agent is offline.
type portAssignment struct {
	owner
	endpointID string
}

// assignPorts returns the assignment of every port to listen on. If several objects have one port,
// the oldest keeps it, even if the port is released there: a pod may still have an old connection.
// A released port has no listener.
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

// compareAge orders by creation time in seconds, then by name, so that all forwarders and the
// manager agree.
func compareAge(a, b *v1alpha1.BoundEndpoint) int {
	return cmp.Or(
		a.CreationTimestamp.Truncate(time.Second).Compare(b.CreationTimestamp.Truncate(time.Second)),
		cmp.Compare(a.Name, b.Name))
}

// firstEndpointID returns the id of the first endpoint with the URL, or "".
func firstEndpointID(o owner, refs []v1alpha1.EndpointRef) string {
	for _, ref := range refs {
		u, err := account.ParseEndpointURL(ref.URL)
		if err == nil && u.Scheme == o.scheme && u.Host == o.host && u.Port == o.port {
			return ref.ID
		}
	}
	return ""
}
