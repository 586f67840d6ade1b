// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
)

// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports,verbs=get;list;watch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports/status,verbs=update
// +kubebuilder:rbac:groups=about.k8s.io,resources=clusterproperties,verbs=get

// SetupWithManager adds the controller, and what reads ServiceExports. Both run on every replica.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ofService := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return r.ifKnown(client.ObjectKeyFromObject(o))
	})
	ofSlice := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return r.ifKnown(types.NamespacedName{Namespace: o.GetNamespace(), Name: upstream.ServiceOf(o)})
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("serviceexport").
		Watches(&corev1.Service{}, ofService).
		Watches(&discoveryv1.EndpointSlice{}, ofSlice).
		WatchesRawSource(r.exports.changes).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: ptr.To(false)}).
		Complete(r)
	if err := errors.Join(err, mgr.Add(r)); err != nil {
		return fmt.Errorf("adding the controller of ServiceExports: %w", err)
	}
	return nil
}

// ifKnown returns a request for an export that there is.
func (r *Reconciler) ifKnown(name types.NamespacedName) []reconcile.Request {
	if !r.exports.has(name) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// Lead reads the account's records, and writes those of this cluster, until the context ends: while
// this replica leads.
func (r *Reconciler) Lead(ctx context.Context) {
	r.EnqueueAll()
	r.feed.run(ctx)
}

// Counts returns how many exports there are, how many of them the account does not have as they
// should be, as far as this replica knows, and whether ServiceExports are read.
func (r *Reconciler) Counts() (exports, failed int, read bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.exports.all()), len(r.failed), r.kind.isRead()
}
