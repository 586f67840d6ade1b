// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accessrules watches who may call which endpoints: the cluster's EndpointAccess objects,
// compiled by internal/endpointaccess, and the labels of namespaces, which the rules may name. The
// forwarder asks it about each connection and is told of changes; so is the manager, where it has
// rights in listed namespaces only.
//
// Of a namespace whose EndpointAccess objects were never listed completely nothing is known. What
// was listed stays valid while the API server is away. A cluster without the CRD has no objects.
//
// The last objects that selected an endpoint can vanish although it is not meant to be open: their
// namespace is being deleted, or they are being replaced. So what they said holds for Options.Grace,
// and the caller.Snapshot reports which namespaces are being deleted.
package accessrules

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/policywatch"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
)

// Options configure a Watcher.
type Options struct {
	Kubernetes *rest.Config
	// Default is the decision for endpoints that no EndpointAccess selects.
	Default endpointaccess.Default
	// Namespaces are the only ones whose EndpointAccess objects are read, each by a watch of its
	// own; empty: all, by one watch.
	Namespaces []string
	// NamespaceLabels reports whether the rules are complete only with the labels of all namespaces.
	// Namespaces are watched without it, too, unless Namespaces are listed.
	NamespaceLabels bool
	// Grace is how long objects that have vanished hold for endpoints that no other one selects,
	// where Default is Allow. 0: not at all.
	Grace  time.Duration
	Logger *slog.Logger
}

// Watcher watches the rules of a cluster. Its methods are safe for concurrent use.
type Watcher struct {
	*policywatch.Watch
	options    Options
	labels     *informer.Set // labels of namespaces; nil: namespaces are not watched
	namespaces cache.Store

	namespacesListed atomic.Bool

	mu       sync.Mutex // mu serializes publish.
	vanished policywatch.Vanished[endpointaccess.Policy]
	current  atomic.Pointer[caller.Snapshot]
}

const resource = "endpointaccesses"

// New returns a Watcher; Run makes it watch.
func New(o Options) (*Watcher, error) {
	objects, err := policywatch.New(o.Kubernetes, policywatch.Kind{Name: "EndpointAccess", Resource: resource,
		Object: &v1alpha1.EndpointAccess{}, List: &v1alpha1.EndpointAccessList{}}, o.Namespaces, o.Logger)
	if err != nil {
		return nil, err
	}
	w := &Watcher{Watch: objects, options: o}
	if o.Default == endpointaccess.Allow {
		w.vanished.Grace = o.Grace
	}
	if o.NamespaceLabels || len(o.Namespaces) == 0 {
		if err := w.addNamespaces(o.Kubernetes); err != nil {
			return nil, err
		}
	}
	w.publish()
	return w, nil
}

func (w *Watcher) addNamespaces(config *rest.Config) error {
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making client for namespaces: %w", err)
	}
	w.labels = informer.NewSet()
	lw := cache.NewListWatchFromClient(client.RESTClient(), "namespaces", metav1.NamespaceAll, fields.Everything())
	w.namespaces, err = w.labels.Add(lw, &corev1.Namespace{}, trimNamespace)
	return err
}

// trimNamespace reduces a namespace to its name, its labels and the time of its deletion.
func trimNamespace(object any) (any, error) {
	if o, ok := object.(*corev1.Namespace); ok {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID,
			ResourceVersion: o.ResourceVersion, Labels: o.Labels, DeletionTimestamp: o.DeletionTimestamp}}, nil
	}
	return object, nil
}

// Run watches until ctx is done. Failing lists and watches are retried with back-off.
func (w *Watcher) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { w.RunEach(ctx, w.update) })
	if w.labels != nil {
		running.Go(func() { w.labels.Run(ctx, w.updateNamespaces) })
	}
}

// update publishes the objects.
func (w *Watcher) update() {
	w.publish()
	w.Notify()
}

// updateNamespaces is called after changes of namespaces.
func (w *Watcher) updateNamespaces() {
	if !w.namespacesListed.Swap(true) {
		w.publish()
	}
	w.Notify()
}

// publish makes the objects the current rules.
func (w *Watcher) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := &caller.Snapshot{Listed: w.Listed(), NamespacesNeeded: w.options.NamespaceLabels,
		NamespacesListed: w.namespacesListed.Load()}
	if w.labels != nil {
		next.Namespaces = namespaces{w.namespaces}
	}
	next.Policies = policywatch.Policies(w.Watch, accesspolicy.Of)
	vanished := w.vanished.Update(next.Policies, w.update)
	next.Rules = endpointaccess.Compile(slices.Concat(next.Policies, vanished), w.options.Default)
	w.current.Store(next)
}

// Snapshot returns the current rules.
func (w *Watcher) Snapshot() *caller.Snapshot { return w.current.Load() }

// namespaces implements caller.Namespaces.
type namespaces struct{ store cache.Store }

// Namespace implements caller.Namespaces.
func (n namespaces) Namespace(name string) (set endpointaccess.Labels, terminating, exists bool) {
	object, exists, err := n.store.GetByKey(name)
	if !exists || err != nil {
		return nil, false, false
	}
	namespace := object.(*corev1.Namespace)
	return labels.Set(namespace.Labels), namespace.DeletionTimestamp != nil, true
}
