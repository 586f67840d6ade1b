// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// RequestPass requests a pass. It does not block, and may be called before the controller starts.
func (r *Reconciler) RequestPass() { r.requests.NotifyObject(r.request().NamespacedName) }

// SetupWithManager adds the controller. All events request the same pass. Without watchAccess,
// changes of EndpointAccess objects are to be told by RequestPass.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchAccess bool) error {
	r.RequestPass() // needed where there are no objects, too
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{r.request()}
	})
	specOrMarks := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	build := ctrl.NewControllerManagedBy(mgr).
		Named("networkpolicy").
		WatchesRawSource(r.requests).
		Watches(&networkingv1.NetworkPolicy{}, pass)
	if !r.Disabled {
		build = build.Watches(&v1alpha1.BoundEndpoint{}, pass, specOrMarks)
	}
	if !r.Disabled && watchAccess {
		build = build.Watches(&v1alpha1.EndpointAccess{}, pass, specOrMarks)
	}
	return build.Complete(r)
}

// request is the request of every pass.
func (r *Reconciler) request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Layout.Installation.Namespace,
		Name: r.Layout.baseName()}}
}
