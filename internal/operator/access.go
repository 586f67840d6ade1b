// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/accessstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/networkpolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// accessDebounce is how long the statuses of EndpointAccess objects wait after the forwarders'
// status, or the NetworkPolicies, have changed.
const accessDebounce = time.Second

// access is the part of the manager that EndpointAccess objects concern.
type access struct {
	policies *networkpolicy.Reconciler
	changes  *notify.Source // names objects whose enforcement may have changed
	cached   client.Client
	unread   bool // without --default-access, as charts before this flag gave no right to read the objects
	listed   bool // the objects cannot be read in the whole cluster
}

// newAccess returns what writes the forwarders' NetworkPolicies or, without --network-policies, what
// deletes them, and what reports in EndpointAccess objects.
func newAccess(
	ctx context.Context, mgr ctrl.Manager, o ManagerOptions, s settings, anchors *installation.Anchors,
) *access {
	a := &access{changes: notify.New("", accessDebounce), cached: mgr.GetClient(), unread: o.DefaultAccess == "",
		listed: s.namespaces.Listed()}
	a.policies = networkpolicy.New(networkpolicy.Options{
		Client: a.cached, Live: mgr.GetAPIReader(), Owners: anchors.Owners,
		Disabled: !o.NetworkPolicies || !o.BindingEnabled || a.unread,
		Layout: networkpolicy.Layout{
			Installation: anchors.Installation, ForwarderName: o.ForwarderName, ForwarderInstance: o.ForwarderInstance,
			FirstPort: s.ports.First, LastPort: s.ports.Last, HealthPort: forwarderstatus.Port,
			MetricsPort: portOf(o.MetricsAddr), Closed: o.DefaultAccess == endpointaccess.Deny,
		},
		Access: func(ctx context.Context) (networkpolicy.Access, error) {
			objects, err := a.list(ctx)
			return networkpolicy.NewAccess(objects, o.DefaultAccess), err
		},
		Passed: func() { a.notifyAll(ctx) },
	})
	return a
}

// list returns all EndpointAccess objects. They must not be modified.
func (a *access) list(ctx context.Context) ([]v1alpha1.EndpointAccess, error) {
	if a.listed || a.unread {
		return nil, nil
	}
	var list v1alpha1.EndpointAccessList
	if err := a.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing EndpointAccess objects: %w", err)
	}
	return list.Items, nil
}

// notifyAll requests the status of every object.
func (a *access) notifyAll(ctx context.Context) {
	objects, err := a.list(ctx)
	if err != nil {
		return // the cache has not started, and the first events name all of them; or it has stopped
	}
	for i := range objects {
		a.changes.NotifyObject(types.NamespacedName{Namespace: objects[i].Namespace, Name: objects[i].Name})
	}
}

// setup adds the controllers. notify is called with hostnames that wait for NetworkPolicies.
func (a *access) setup(mgr ctrl.Manager, forwarders accessstatus.Forwarders, notify func(hostname string)) error {
	if a.unread {
		return nil
	}
	a.policies.Notify = notify
	if err := a.policies.SetupWithManager(mgr, !a.listed); err != nil || a.listed {
		return err
	}
	statuses := &accessstatus.Reconciler{Client: a.cached, Forwarders: forwarders, Now: time.Now}
	if !a.policies.Disabled {
		statuses.NetworkPolicies = a.policies
	}
	return statuses.SetupWithManager(mgr, a.changes)
}

// portOf returns the port of a listener's address; 0 for none. Managers and forwarders listen for
// metrics on the same one.
func portOf(addr string) int32 {
	_, text, _ := net.SplitHostPort(addr)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int32(port)
}
