// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
)

const (
	workers = 4
	// indexUpstream indexes AgentEndpoints by the "<namespace>/<name>" of their Service,
	// indexConfigMap by that of the ConfigMap with their traffic policy.
	indexUpstream  = "fairlead.upstream"
	indexConfigMap = "fairlead.configMap"
)

// setUp adds the controller of AgentEndpoints.
func (r *agentEndpoints) setUp(ctx context.Context, mgr ctrl.Manager) error {
	for index, values := range map[string]client.IndexerFunc{indexUpstream: r.upstreamOf, indexConfigMap: configMapOf} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.AgentEndpoint{}, index, values); err != nil {
			return fmt.Errorf("indexing AgentEndpoints: %w", err)
		}
	}
	ofService := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.byIndex(ctx, indexUpstream, o.GetNamespace()+"/"+o.GetName())
	})
	ofSlice := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.byIndex(ctx, indexUpstream, o.GetNamespace()+"/"+upstream.ServiceOf(o))
	})
	ofConfigMap := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.byIndex(ctx, indexConfigMap, o.GetNamespace()+"/"+o.GetName())
	})
	build := ctrl.NewControllerManagedBy(mgr).Named("agentendpoint").
		For(&v1alpha1.AgentEndpoint{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Service{}, ofService).
		Watches(&discoveryv1.EndpointSlice{}, ofSlice).
		WatchesRawSource(r.changes).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: ptr.To(false)})
	if r.policies.ReadsConfigMaps() {
		build = build.WatchesMetadata(&corev1.ConfigMap{}, ofConfigMap)
	}
	return build.Complete(r)
}

// upstreamOf returns the values of indexUpstream.
func (r *agentEndpoints) upstreamOf(o client.Object) []string {
	ref, p := r.rules.upstreams.Parse(o.(*v1alpha1.AgentEndpoint).Spec.Upstream.URL, o.GetNamespace())
	if p != nil {
		return nil
	}
	return []string{ref.Service.String()}
}

// configMapOf returns the values of indexConfigMap.
func configMapOf(o client.Object) []string {
	name := policy.ConfigMapName(o.(*v1alpha1.AgentEndpoint).Spec.TrafficPolicy)
	if name == "" {
		return nil
	}
	return []string{o.GetNamespace() + "/" + name}
}

// byIndex returns requests for the AgentEndpoints with the value in the index.
func (r *agentEndpoints) byIndex(ctx context.Context, index, value string) []reconcile.Request {
	return notify.Requests(notify.Names(ctx, r.client, &v1alpha1.AgentEndpointList{},
		client.MatchingFields{index: value}))
}

// enqueueAll requests a reconciliation of every AgentEndpoint.
func (r *agentEndpoints) enqueueAll(ctx context.Context) {
	r.changes.NotifyObjects(notify.Names(ctx, r.client, &v1alpha1.AgentEndpointList{}))
}
