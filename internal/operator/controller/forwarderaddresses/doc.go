// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forwarderaddresses provides the forwarders' addresses that EndpointSlices may list.
//
// Input: Kubernetes' own EndpointSlices of the forwarders' Service, the only source of addresses.
// Output: endpoints for internal/operator/controller/boundendpoint, which copies them into the
// slices of target Services, and the list of addresses that
// internal/operator/controller/registration writes to status.projectedForwarders of the
// KubernetesOperator.
//
// An address is in that list before a slice lists it as ready, and until no slice does: a stopping
// forwarder accepts connections until its address is gone from it. So the list is written before
// endpoints with a new address are handed out, and shortened only when no endpoints with the old
// one are in use and the API server has no slice with it.
package forwarderaddresses
