// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// recordLatency tells Latency that the hostname has its Services, or that it cannot have them. An
// unexpected error leaves it waiting.
func (r *Reconciler) recordLatency(b *v1alpha1.BoundEndpoint, found *status.Problem) {
	switch {
	case found != nil && found.Err == nil:
		r.Latency.Drop(b.Name)
	case found == nil && b.Spec.State != v1alpha1.StateReleased:
		ports := make([]int32, 0, len(b.Spec.Ports))
		for _, p := range b.Spec.Ports {
			if p.State != v1alpha1.StateReleased {
				ports = append(ports, p.Port)
			}
		}
		r.Latency.Done(b.Name, ports)
	}
}

// listTimeout bounds reading the BoundEndpoints for a scrape, while the cache is not filled.
const listTimeout = time.Second

// reasonCounter counts the BoundEndpoints in the cache. It is a prometheus.Collector.
type reasonCounter struct {
	client       client.Reader
	installation installation.Installation
	desc         *prometheus.Desc
}

// RegisterMetrics registers the number of BoundEndpoints by the reason of their condition Ready.
func (r *Reconciler) RegisterMetrics(registry prometheus.Registerer) error {
	desc := prometheus.NewDesc("fairlead_operator_bound_endpoints",
		"BoundEndpoints by the reason of their condition Ready.", []string{"reason"}, nil)
	return registry.Register(&reasonCounter{r.Client, r.Layout.Installation, desc})
}

// Describe implements prometheus.Collector.
func (c *reasonCounter) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *reasonCounter) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var list v1alpha1.BoundEndpointList
	if err := c.client.List(ctx, &list, client.InNamespace(c.installation.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is not filled yet
	}
	counts := map[string]int{v1alpha1.ReasonReady: 0}
	for i := range list.Items {
		if b := &list.Items[i]; c.installation.Owns(b) {
			reason := ""
			if ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
				reason = ready.Reason
			}
			counts[cmp.Or(reason, "Unknown")]++
		}
	}
	for reason, n := range counts {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), reason)
	}
}
