// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// RecordProjectedForwarders writes the status's ProjectedForwarders. It is safe for concurrent use.
func (r *Registration) RecordProjectedForwarders(ctx context.Context, addresses []string) error {
	r.mu.Lock()
	r.projectedForwarders = &addresses
	r.mu.Unlock()
	return r.Refresh(ctx)
}

// RecordedProjectedForwarders reads the status's ProjectedForwarders from the API server.
func (r *Registration) RecordedProjectedForwarders(ctx context.Context) ([]string, error) {
	status, err := r.recorded(ctx)
	return status.ProjectedForwarders, err
}

// RecordNetworkPolicies writes the status's NetworkPolicies, nil for none, and the condition
// NetworkPoliciesWritten. It is safe for concurrent use.
func (r *Registration) RecordNetworkPolicies(ctx context.Context, written *v1alpha1.WrittenNetworkPolicies) error {
	r.mu.Lock()
	r.networkPolicies = &written
	r.mu.Unlock()
	return r.Refresh(ctx)
}

// RecordedNetworkPolicies reads the status's NetworkPolicies from the API server.
func (r *Registration) RecordedNetworkPolicies(ctx context.Context) (*v1alpha1.WrittenNetworkPolicies, error) {
	status, err := r.recorded(ctx)
	return status.NetworkPolicies, err
}

// recorded reads the status from the API server; it is empty without the object.
func (r *Registration) recorded(ctx context.Context) (v1alpha1.KubernetesOperatorStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: r.Anchors.Installation.Namespace, Name: r.Anchors.Installation.Release}
	var object v1alpha1.KubernetesOperator
	if err := r.Live.Get(ctx, key, &object); client.IgnoreNotFound(err) != nil {
		return v1alpha1.KubernetesOperatorStatus{}, fmt.Errorf("reading KubernetesOperator %s: %w", key, err)
	}
	return object.Status, nil
}

// setLatest remembers the object that was written in place of the version replaced, empty if there
// was none.
func (r *Registration) setLatest(replaced string, written *v1alpha1.KubernetesOperator, err error) {
	const remembered = 8
	if err != nil {
		r.latest, r.replaced = nil, nil
		return
	}
	r.latest = written.DeepCopy()
	if replaced == "" {
		r.replaced = nil
		return
	}
	r.replaced = append(r.replaced[max(0, len(r.replaced)-remembered):], replaced)
}
