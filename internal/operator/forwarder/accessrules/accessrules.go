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
	"cmp"
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
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
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
	options    Options
	log        *slog.Logger
	sources    []*source
	labels     *informer.Set // labels of namespaces; nil: namespaces are not watched
	namespaces cache.Store

	namespacesListed atomic.Bool

	mu       sync.Mutex              // mu serializes publish.
	vanished []endpointaccess.Policy // deleted policies that still hold, in the order of their deletion
	expiry   *time.Timer             // end of the first of vanished, which publishes; nil: none has vanished yet
	current  atomic.Pointer[caller.Snapshot]
	changed  chan struct{}
}

// source is the watch of one namespace's objects, or of all.
type source struct {
	namespace string // watched namespace; metav1.NamespaceAll: all
	set       *informer.Set
	objects   cache.Store
	complete  atomic.Bool
}

// New returns a Watcher; Run makes it watch.
func New(o Options) (*Watcher, error) {
	bindings, err := process.NewBindingsClient(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	w := &Watcher{options: o, log: o.Logger, changed: make(chan struct{}, 1)}
	names := o.Namespaces
	if len(names) == 0 {
		names = []string{metav1.NamespaceAll}
	}
	for _, name := range names {
		s := &source{namespace: name, set: informer.NewSet()}
		lw := &optionalKind{ListWatch: cache.NewListWatchFromClient(bindings, resource, name, fields.Everything()),
			client: bindings, log: o.Logger.With("namespace", cmp.Or(name, "all"))}
		if s.objects, err = s.set.Add(lw, &v1alpha1.EndpointAccess{}, trimAccess); err != nil {
			return nil, err
		}
		w.sources = append(w.sources, s)
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

// trimAccess drops what the rules do not need.
func trimAccess(object any) (any, error) {
	if o, ok := object.(*v1alpha1.EndpointAccess); ok {
		o.ManagedFields, o.Annotations, o.Labels = nil, nil, nil
	}
	return object, nil
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
	for _, s := range w.sources {
		running.Go(func() { s.set.Run(ctx, func() { w.update(s) }) })
	}
	if w.labels != nil {
		running.Go(func() { w.labels.Run(ctx, w.updateNamespaces) })
	}
}

// update publishes a source's objects.
func (w *Watcher) update(s *source) {
	if !s.complete.Swap(true) {
		w.log.Info("EndpointAccess objects listed", "namespace", cmp.Or(s.namespace, "all"), "objects",
			len(s.objects.List()))
	}
	w.publish()
	w.notify()
}

// updateNamespaces is called after changes of namespaces.
func (w *Watcher) updateNamespaces() {
	if !w.namespacesListed.Swap(true) {
		w.publish()
	}
	w.notify()
}

// publish makes the objects the current rules.
func (w *Watcher) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := &caller.Snapshot{Listed: map[string]bool{}, NamespacesNeeded: w.options.NamespaceLabels,
		NamespacesListed: w.namespacesListed.Load()}
	if w.labels != nil {
		next.Namespaces = namespaces{w.namespaces}
	}
	var policies []endpointaccess.Policy
	for _, s := range w.sources {
		next.Listed[s.namespace] = s.complete.Load()
		for _, object := range s.objects.List() {
			policies = append(policies, accesspolicy.Of(object.(*v1alpha1.EndpointAccess)))
		}
	}
	w.remember(policies, time.Now())
	next.Policies = policies
	next.Rules = endpointaccess.Compile(slices.Concat(policies, w.vanished), w.options.Default)
	w.current.Store(next)
}

// remember adds to vanished what is not among the policies any more, and removes what ceases to
// hold. mu must be held.
func (w *Watcher) remember(policies []endpointaccess.Policy, now time.Time) {
	last := w.current.Load()
	if w.options.Grace == 0 || w.options.Default != endpointaccess.Allow || last == nil {
		return
	}
	type version struct {
		uid        string
		generation int64
	}
	current := make(map[version]struct{}, len(policies))
	for i := range policies {
		current[version{policies[i].UID, policies[i].Generation}] = struct{}{}
	}
	for _, p := range last.Policies {
		if _, ok := current[version{p.UID, p.Generation}]; !ok {
			p.Vanished = now
			w.vanished = append(w.vanished, p)
		}
	}
	w.vanished = slices.DeleteFunc(w.vanished, func(p endpointaccess.Policy) bool {
		return now.Sub(p.Vanished) >= w.options.Grace
	})
	switch {
	case len(w.vanished) == 0:
	case w.expiry == nil:
		w.expiry = time.AfterFunc(w.options.Grace, func() { w.publish(); w.notify() })
	default:
		w.expiry.Reset(w.vanished[0].Vanished.Add(w.options.Grace).Sub(now))
	}
}

func (w *Watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Changed returns a channel that receives after the rules or namespaces' labels have changed: once
// for any number of changes, for one receiver.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

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
