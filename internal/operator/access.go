// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/accessstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/networkpolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/accessrules"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

const (
	// accessDebounce is how long the statuses of EndpointAccess objects wait after the forwarders'
	// status, or the NetworkPolicies, have changed.
	accessDebounce = time.Second
	// listedWait is how long a manager that has started waits for the EndpointAccess objects of
	// every listed namespace before the endpoints of those that refuse are closed.
	listedWait = 10 * time.Second
)

// access is the part of the manager that EndpointAccess and EndpointTrust objects concern.
type access struct {
	process.EveryReplica
	policies  *networkpolicy.Reconciler
	changes   *notify.Source // names objects whose enforcement may have changed
	client    client.Client  // of the objects: cached, unless namespaces are listed
	byDefault endpointaccess.Default
	listed    *accessrules.Watcher // the objects of listed namespaces; nil: all are cached
	waited    atomic.Bool          // listedWait is over
	trust     *trustObjects        // nil: EndpointTrust objects are not read
	unread    bool                 // without --default-access, as charts before it gave no right to read the objects
}

// newAccess returns what writes the forwarders' NetworkPolicies or, without --network-policies, what
// deletes them, and what reports in EndpointAccess objects.
func newAccess(mgr ctrl.Manager, direct directClients, o settings) *access {
	a := &access{changes: notify.New("", accessDebounce), client: mgr.GetClient(), byDefault: o.DefaultAccess,
		unread: o.DefaultAccess == "", trust: direct.trust}
	if direct.access != nil {
		a.listed, a.client = direct.access, direct.client
	}
	a.policies = networkpolicy.New(networkpolicy.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Anchors: direct.anchors,
		Disabled: !o.NetworkPolicies || !o.BindingEnabled || a.unread, Rules: a,
		Layout: networkpolicy.Layout{
			Installation: o.Installation, ForwarderPods: o.ForwarderPods, FirstPort: o.ports.First,
			LastPort: o.ports.Last, HealthPort: forwarderstatus.Port, MetricsPort: portOf(o.MetricsAddr),
			Closed: o.DefaultAccess == endpointaccess.Deny,
		},
	})
	return a
}

// newListedAccess returns what reads the EndpointAccess objects of listed namespaces; nil if none
// are listed, or the objects are not to be read.
func newListedAccess(o settings) (*accessrules.Watcher, error) {
	if len(o.AllowNamespaces) == 0 || o.DefaultAccess == "" {
		return nil, nil
	}
	listed, err := accessrules.New(accessrules.Options{Kubernetes: clientConfig(o.Kubernetes),
		Default: o.DefaultAccess, Namespaces: o.AllowNamespaces, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("preparing to read EndpointAccess objects: %w", err)
	}
	return listed, nil
}

// Allowed implements networkpolicy.Rules.
func (a *access) Allowed(ctx context.Context) (networkpolicy.Access, error) {
	if a.listed != nil {
		rules := a.listed.Snapshot()
		if !rules.Complete() && !a.waited.Load() {
			return networkpolicy.Access{}, networkpolicy.ErrNotRead
		}
		return networkpolicy.NewPartialAccess(rules.Rules, rules.Policies, rules), nil
	}
	var list v1alpha1.EndpointAccessList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return networkpolicy.Access{}, fmt.Errorf("listing EndpointAccess objects: %w", err)
	}
	return networkpolicy.NewAccess(list.Items, a.byDefault), nil
}

// Passed implements networkpolicy.Rules: the status of every object is due.
func (a *access) Passed(ctx context.Context) {
	a.trust.notify(ctx)
	if a.unread {
		return
	}
	if a.listed != nil {
		for _, p := range a.listed.Snapshot().Policies {
			a.changes.NotifyObject(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
		return
	}
	// none if the cache has not started, and the first events name all of them
	a.changes.NotifyObjects(notify.Names(ctx, a.client, &v1alpha1.EndpointAccessList{}))
}

// setup adds the controllers, and connects the condition. waiting is notified of hostnames that wait
// for NetworkPolicies, later of those whose seals may be decided otherwise.
func (a *access) setup(
	mgr ctrl.Manager, o settings, forwarders Forwarders, register *registration.Registration,
	announced accessstatus.Announced, waiting, later *notify.Source,
) error {
	errs := []error{a.trust.setup(mgr, forwarders, announced, later)}
	if a.unread {
		return errors.Join(errs...)
	}
	a.policies.Waiting, a.policies.Recorder = waiting, register
	if o.BindingEnabled {
		a.policies.Forwarders = forwarders
	}
	statuses := &accessstatus.Reconciler{Client: a.client, Forwarders: forwarders, Clock: clock.RealClock{}}
	if !a.policies.Disabled {
		statuses.NetworkPolicies, register.NetworkPolicies = a.policies, a.policies
	}
	errs = append(errs, a.policies.SetupWithManager(mgr, a.listed == nil),
		statuses.SetupWithManager(mgr, a.listed == nil, a.changes))
	if a.listed != nil {
		errs = append(errs, mgr.Add(a))
	}
	return errors.Join(errs...)
}

// Start reads the EndpointAccess objects of listed namespaces until the context ends.
func (a *access) Start(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { defer close(ended); a.listed.Run(ctx) }()
	waited := time.After(listedWait)
	for {
		select {
		case <-a.listed.Changed():
		case <-waited:
			a.waited.Store(true)
		case <-ctx.Done():
			<-ended
			return nil
		}
		a.policies.RequestPass()
		a.Passed(ctx)
	}
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
