// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

const (
	workers = 8
	// createdDelay is the delay before a Service that this manager has just created is reconciled;
	// its event usually has no news.
	createdDelay = time.Second

	// indexHostname indexes our Services by hostname, indexUpstream and indexNamespace
	// BoundEndpoints by upstream Service and target namespace.
	indexHostname  = "fairlead.hostname"
	indexUpstream  = "fairlead.upstream"
	indexNamespace = "fairlead.namespace"
)

// Index adds the indexes that a Reconciler's Client needs.
func Index(ctx context.Context, indexer client.FieldIndexer, own installation.Installation) error {
	byHostname := func(o client.Object) []string {
		if !own.Owns(o) {
			return nil
		}
		return []string{serviceHostname(own, o)}
	}
	byUpstream := ofServices(func(b *v1alpha1.BoundEndpoint) string { return upstreamName(b.Spec.ProjectionID) })
	byNamespace := ofServices(func(b *v1alpha1.BoundEndpoint) string { return b.Spec.Namespace })
	if err := indexer.IndexField(ctx, &corev1.Service{}, indexHostname, byHostname); err != nil {
		return fmt.Errorf("indexing Services: %w", err)
	}
	if err := indexer.IndexField(ctx, &v1alpha1.BoundEndpoint{}, indexUpstream, byUpstream); err != nil {
		return fmt.Errorf("indexing BoundEndpoints: %w", err)
	}
	if err := indexer.IndexField(ctx, &v1alpha1.BoundEndpoint{}, indexNamespace, byNamespace); err != nil {
		return fmt.Errorf("indexing BoundEndpoints: %w", err)
	}
	return nil
}

// ofServices returns an index of the BoundEndpoints that have Services.
func ofServices(value func(*v1alpha1.BoundEndpoint) string) client.IndexerFunc {
	return func(o client.Object) []string {
		b := o.(*v1alpha1.BoundEndpoint)
		if b.Spec.Cluster != "" {
			return nil
		}
		return []string{value(b)}
	}
}

// SetupWithManager adds the controller. The sources name hostnames whose state in the account or in
// the forwarders changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, sources ...source.Source) error {
	specOrMarks := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{},
		predicate.AnnotationChangedPredicate{})
	build := ctrl.NewControllerManagedBy(mgr)
	if r.Target.Services != nil {
		sources = append(sources, r.Target.Services.Source(r.requests.serviceHandler()))
	} else {
		ns := &metav1.PartialObjectMetadata{}
		ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		build = build.Watches(ns, handler.EnqueueRequestsFromMapFunc(r.requests.inNamespace),
			builder.WithPredicates(r.requests.namespaceChanged()))
		if !r.Target.WithoutSlices {
			build = build.Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.requests.ofSlice),
				builder.WithPredicates(predicate.Funcs{
					CreateFunc: func(event.CreateEvent) bool { return false }, // ours are made by Reconcile
				}))
		}
	}
	for _, s := range sources {
		build = build.WatchesRawSource(s)
	}
	return build.
		Named("boundendpoint").
		For(&v1alpha1.BoundEndpoint{}, builder.WithPredicates(specOrMarks)).
		Watches(&corev1.Service{}, r.requests.serviceHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// requestMapper names the BoundEndpoints that a change of another object concerns.
type requestMapper struct {
	client       client.Reader
	installation installation.Installation
	policy       namespaces.Policy
}

// namespaceChanged passes the creation and deletion of a Namespace and changes of its consent and
// projection.
func (m *requestMapper) namespaceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := m.policy.MissingConsent(e.ObjectOld.GetName(), e.ObjectOld.GetLabels()),
			m.policy.MissingConsent(e.ObjectNew.GetName(), e.ObjectNew.GetLabels())
		return before != now ||
			e.ObjectOld.GetLabels()[v1alpha1.LabelProjection] != e.ObjectNew.GetLabels()[v1alpha1.LabelProjection] ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}

func (m *requestMapper) inNamespace(ctx context.Context, ns client.Object) []reconcile.Request {
	return m.byIndex(ctx, indexNamespace, ns.GetName())
}

// ofSlice returns a request for the hostname whose target Service has the slice.
func (m *requestMapper) ofSlice(_ context.Context, slice client.Object) []reconcile.Request {
	if !m.installation.Marked(slice) {
		return nil
	}
	name := slice.GetLabels()[discoveryv1.LabelServiceName] + "." + slice.GetNamespace()
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: m.installation.Namespace, Name: name}}}
}

// serviceHandler maps Services to BoundEndpoints: ours by the hostname they belong to, others by
// the name or projection id that they conflict with. Generic events have a Namespace.
func (m *requestMapper) serviceHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue, requests []reconcile.Request) {
		for _, request := range requests {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList && m.installation.Owns(e.Object) {
				for _, request := range m.requestsForService(ctx, e.Object) {
					q.AddAfter(request, createdDelay)
				}
				return
			}
			add(q, m.requestsForService(ctx, e.Object))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			add(q, m.requestsForService(ctx, e.ObjectOld))
			add(q, m.requestsForService(ctx, e.ObjectNew))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			add(q, m.requestsForService(ctx, e.Object))
		},
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(q, m.inNamespace(ctx, e.Object)) },
	}
}

// requestsForService returns the BoundEndpoints that a Service concerns.
func (m *requestMapper) requestsForService(ctx context.Context, service client.Object) []reconcile.Request {
	own := m.installation
	named := func(hostname string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: own.Namespace, Name: hostname}}
	}
	if service.GetNamespace() == own.Namespace {
		requests := m.byIndex(ctx, indexUpstream, service.GetName())
		if hostname := serviceHostname(own, service); own.Owns(service) && hostname != "" {
			requests = append(requests, named(hostname))
		}
		return requests
	}
	request := named(serviceHostname(own, service))
	if own.Owns(service) {
		return []reconcile.Request{request}
	}
	if err := m.client.Get(ctx, request.NamespacedName, &v1alpha1.BoundEndpoint{}); err != nil {
		return nil // no BoundEndpoint has this hostname
	}
	return []reconcile.Request{request}
}

// byIndex returns requests for the BoundEndpoints with the index value.
func (m *requestMapper) byIndex(ctx context.Context, index, value string) []reconcile.Request {
	return notify.Requests(notify.Names(ctx, m.client, &v1alpha1.BoundEndpointList{},
		client.InNamespace(m.installation.Namespace), client.MatchingFields{index: value}))
}
