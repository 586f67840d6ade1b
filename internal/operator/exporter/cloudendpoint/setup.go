// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
)

// indexConfigMap finds CloudEndpoints by the ConfigMap of their traffic policy.
const indexConfigMap = "cloudendpoint.trafficPolicy.configMap"

// Index adds the index that the Reconciler's Client needs.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.CloudEndpoint{}, indexConfigMap, func(o client.Object) []string {
		if name := policy.ConfigMapName(o.(*v1alpha1.CloudEndpoint).Spec.TrafficPolicy); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing CloudEndpoints: %w", err)
	}
	return nil
}

// SetupWithManager adds the controller. It runs on every replica, as one that gets the Lease later
// has to know the objects.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	build := ctrl.NewControllerManagedBy(mgr).
		Named("cloudendpoint").
		For(&v1alpha1.CloudEndpoint{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.changes).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: ptr.To(false)})
	if r.Policies.ReadsConfigMaps() {
		build = build.WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.referringTo))
	}
	return build.Complete(r)
}

// EnqueueAll has every object reconciled: this replica leads since a moment ago.
func (r *Reconciler) EnqueueAll(ctx context.Context) {
	r.changes.NotifyObjects(notify.Names(ctx, r.Client, &v1alpha1.CloudEndpointList{}))
}

// referringTo returns requests for the objects whose traffic policy is in the ConfigMap.
func (r *Reconciler) referringTo(ctx context.Context, m client.Object) []reconcile.Request {
	return notify.Requests(notify.Names(ctx, r.Client, &v1alpha1.CloudEndpointList{},
		client.InNamespace(m.GetNamespace()), client.MatchingFields{indexConfigMap: m.GetName()}))
}
