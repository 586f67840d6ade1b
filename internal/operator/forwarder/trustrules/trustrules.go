// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trustrules watches whose agents may answer for which endpoints: the cluster's
// EndpointTrust objects, compiled by internal/endpointtrust. Forwarders ask it about each
// connection and are told of changes; the manager reports problems of the objects.
//
// Until the objects of a namespace were listed, its endpoints are refused. What was listed stays valid
// while the API server is away. Where the installation is not set up for sealing, the right to list
// may be missing, as in Roles from before there were such objects: then there are none.
// A cluster without the CRD has no objects. The last objects that selected an endpoint hold for
// Grace after they have vanished, so that one that is replaced leaves no moment without.
package trustrules

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/policywatch"
)

// Options configure a Watcher.
type Options struct {
	Kubernetes *rest.Config
	Default    endpointtrust.Default
	// Namespaces are the only ones whose EndpointTrust objects are read; empty: all.
	Namespaces []string
	// Grace is how long objects that have vanished hold for endpoints that no other one selects.
	Grace  time.Duration
	Logger *slog.Logger
}

// Watcher watches the rules of a cluster. Its methods are safe for concurrent use.
type Watcher struct {
	*policywatch.Watch
	byDefault endpointtrust.Default

	mu       sync.Mutex // mu serializes publish.
	vanished policywatch.Vanished[endpointtrust.Policy]
	current  atomic.Pointer[endpointtrust.Rules]
}

const resource = "endpointtrusts"

// New returns a Watcher; Run makes it watch.
func New(o Options) (*Watcher, error) {
	objects, err := policywatch.New(o.Kubernetes, policywatch.Kind{Name: "EndpointTrust", Resource: resource,
		Object: &v1alpha1.EndpointTrust{}, List: &v1alpha1.EndpointTrustList{},
		ForbiddenIsNone: o.Default.Account == ""}, o.Namespaces, o.Logger)
	if err != nil {
		return nil, err
	}
	w := &Watcher{Watch: objects, byDefault: o.Default}
	w.vanished.Grace = o.Grace
	w.publish()
	return w, nil
}

// Run watches until ctx is done. Failing lists and watches are retried with back-off.
func (w *Watcher) Run(ctx context.Context) { w.RunEach(ctx, w.update) }

func (w *Watcher) update() {
	w.publish()
	w.Notify()
}

// publish makes the objects the current rules.
func (w *Watcher) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := w.Listed() // before the objects, which may be listed meanwhile
	policies := policywatch.Policies(w.Watch, accesspolicy.OfTrust)
	vanished := w.vanished.Update(policies, w.update)
	w.current.Store(endpointtrust.Compile(slices.Concat(policies, vanished), w.byDefault, listed))
}

// Snapshot returns the current rules.
func (w *Watcher) Snapshot() *endpointtrust.Rules { return w.current.Load() }

// Object returns an object, which must not be modified, or nil if there is none.
func (w *Watcher) Object(key types.NamespacedName) *v1alpha1.EndpointTrust {
	o, _ := w.Watch.Object(key).(*v1alpha1.EndpointTrust)
	return o
}

// Names returns the names of the objects.
func (w *Watcher) Names() []types.NamespacedName {
	return policywatch.Policies(w.Watch, func(o *v1alpha1.EndpointTrust) types.NamespacedName {
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	})
}
