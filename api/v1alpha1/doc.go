// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 owns the API of the group bindings.fairlead.dev/v1alpha1: BoundEndpoint, one per
// hostname that is projected into the cluster, and KubernetesOperator, one per release. It holds
// their schema, condition types and documented reasons.
//
// What comes in: endpointsync writes a BoundEndpoint's spec, boundendpoint its status, registration
// the KubernetesOperator. Whom it hands over to: the forwarder reads ports from BoundEndpoints,
// people read both with kubectl. It imports only apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=bindings.fairlead.dev
package v1alpha1
