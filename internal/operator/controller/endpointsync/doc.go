// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsync writes the specs of BoundEndpoint objects, one for each hostname of the
// account's endpoints.
//
// account API --list, watch--> Feed --> Set (desired state in memory) --names--> Reconciler -->
// BoundEndpoint.spec
//
// Feed keeps a Set up to date; Set computes the desired state of each hostname; Reconciler plans
// the difference and writes it. It allocates target ports and keeps the deadlines of removals in
// the object, so that a restart loses nothing. internal/operator/controller/boundendpoint makes
// Services of the objects and asks Set which endpoints are online.
//
// With clusterset.enabled the account's endpoints include what clusters export: their ports, each
// of which has a BoundEndpoint <service>.<namespace>.<cluster>, and the exports themselves, of
// which internal/operator/controller/serviceimport makes ServiceImports.
//
// Nothing is removed before the first complete list, or because a list or a watch failed. A mass
// removal waits for a second list, and every removal by another account's lists waits until that
// account is accepted.
package endpointsync
