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
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// SetupWithManager adds the controller. All events request the same pass.
// Without watchAccess, EndpointAccess objects are not read.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchAccess bool) error {
	first := notify.New("", 0) // needed where there are no objects, too
	first.NotifyObject(r.request().NamespacedName)
	pass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{r.request()}
	})
	specOrMarks := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
		predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	build := ctrl.NewControllerManagedBy(mgr).
		Named("networkpolicy").
		WatchesRawSource(first).
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
