// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the API group bindings.fairlead.dev/v1alpha1: BoundEndpoint, one for
// each hostname that is projected into the cluster, and KubernetesOperator, one for each release,
// with their condition types and reasons.
//
// endpointsync writes a BoundEndpoint's spec, boundendpoint its status, registration the
// KubernetesOperator. The forwarder reads ports from BoundEndpoints; people read both kinds with
// kubectl. The package imports only apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=bindings.fairlead.dev
package v1alpha1
