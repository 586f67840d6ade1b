// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

const workers = 8

// SetupWithManager adds the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	derived := builder.WithPredicates(predicate.NewPredicateFuncs(r.isDerived))
	return ctrl.NewControllerManagedBy(mgr).
		Named("serviceimport").
		WatchesRawSource(r.Changes).
		Watches(ns, handler.EnqueueRequestsFromMapFunc(r.inNamespace), builder.WithPredicates(r.namespaceChanged())).
		Watches(&v1alpha1.BoundEndpoint{}, handler.EnqueueRequestsFromMapFunc(ofBoundEndpoint)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(ofDerived), derived).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(ofDerived), derived).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// isDerived reports whether a Service or an EndpointSlice belongs to a ServiceImport of ours.
func (r *Reconciler) isDerived(o client.Object) bool {
	return r.Anchors.Installation.Marked(o) && o.GetLabels()[mcsv1beta1.LabelServiceName] != ""
}

// ofDerived returns a request for the ServiceImport that a Service or an EndpointSlice belongs to.
func ofDerived(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(),
		Name: o.GetLabels()[mcsv1beta1.LabelServiceName]}}}
}

// ofBoundEndpoint returns a request for the ServiceImport whose target ports a BoundEndpoint has.
func ofBoundEndpoint(_ context.Context, o client.Object) []reconcile.Request {
	b := o.(*v1alpha1.BoundEndpoint)
	if b.Spec.Cluster == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: b.Spec.Namespace,
		Name: b.Spec.Service}}}
}

// inNamespace returns requests for what is exported, or imported, under the name of a Namespace.
func (r *Reconciler) inNamespace(_ context.Context, ns client.Object) []reconcile.Request {
	names := r.importNames(func(o metav1.Object) bool {
		return o.GetNamespace() == ns.GetName() && r.Anchors.Installation.Owns(o)
	})
	for _, name := range r.Exports.ExportedNames() {
		if name.Namespace == ns.GetName() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	requests := make([]reconcile.Request, len(names))
	for i, name := range names {
		requests[i].NamespacedName = name
	}
	return requests
}

// namespaceChanged passes the creation and deletion of a Namespace and changes of its consent.
func (r *Reconciler) namespaceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := r.Namespaces.MissingConsent(e.ObjectOld.GetName(), e.ObjectOld.GetLabels()),
			r.Namespaces.MissingConsent(e.ObjectNew.GetName(), e.ObjectNew.GetLabels())
		return before != now ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}
