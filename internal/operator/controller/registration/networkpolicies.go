// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

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
