// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// Approvals records the specs that this manager wrote, or found to be what it would write, until
// boundendpoint has recorded them in the status: no Service is made and no port opened for a spec
// that another client wrote. The zero value is empty. It is safe for concurrent use.
type Approvals struct {
	// Changes is notified of the hostname of each approval; nil: nothing is.
	Changes *notify.Source

	mu       sync.Mutex
	approved map[string]approval
}

type approval struct {
	uid        types.UID
	generation int64
}

// Approved reports whether the object's spec is approved, now or by an earlier manager. The object
// may be older than the approved one, as the caller reads it from a cache: the approval stays then.
func (a *Approvals) Approved(b *v1alpha1.BoundEndpoint) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.approved[b.Name]
	if !b.Observed() {
		return now == approval{b.UID, b.Generation}
	}
	if now.uid == b.UID && now.generation <= b.Generation {
		delete(a.approved, b.Name)
	}
	return true
}

// approve approves the object's current spec. nil means that the hostname has no object.
func (a *Approvals) approve(hostname string, b *v1alpha1.BoundEndpoint) {
	if b == nil || b.Observed() {
		a.mu.Lock()
		delete(a.approved, hostname)
		a.mu.Unlock()
		return
	}
	a.mu.Lock()
	if a.approved == nil {
		a.approved = map[string]approval{}
	}
	now := approval{b.UID, b.Generation}
	changed := a.approved[hostname] != now
	a.approved[hostname] = now
	a.mu.Unlock()
	if changed && a.Changes != nil {
		a.Changes.Notify(hostname)
	}
}

// trustedSpec returns the object's spec without ports that only an unobserved spec names: neither a
// manager nor a Service has them. It is nil for no object.
func (r *Reconciler) trustedSpec(o *v1alpha1.BoundEndpoint) *v1alpha1.BoundEndpointSpec {
	if o == nil {
		return nil
	}
	if o.Observed() {
		return &o.Spec
	}
	spec := o.Spec.DeepCopy()
	spec.Ports = slices.DeleteFunc(spec.Ports, func(p v1alpha1.BoundPort) bool {
		return !r.Ports.isHeldBy(portKey{o.Name, p.Port}, p.TargetPort)
	})
	return spec
}
