// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the API group bindings.fairlead.dev/v1alpha1: BoundEndpoint, one for
// each hostname that is projected into the cluster, KubernetesOperator, one for each release, and
// AgentEndpoint and CloudEndpoint, endpoints of the account that this cluster declares, with their
// condition types and reasons.
//
// endpointsync writes a BoundEndpoint's spec, boundendpoint its status, registration the
// KubernetesOperator. The forwarder reads ports from BoundEndpoints; people read both kinds with
// kubectl. People write the specs of AgentEndpoints and CloudEndpoints, the exporter their status.
// The package imports only apimachinery.
//
// +kubebuilder:object:generate=true
// +groupName=bindings.fairlead.dev
package v1alpha1
