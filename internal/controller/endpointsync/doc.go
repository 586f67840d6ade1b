// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpointsync owns the way from the account's endpoints to the specs of BoundEndpoint
// objects, one per hostname.
//
//	account API --list, watch--> Feed --> Set (desired state in memory) --names--> Reconciler --> BoundEndpoint.spec
//
// Feed keeps a Set up to date; Set says what each hostname should be; Reconciler plans the
// difference and writes it, allocating target ports and keeping the deadlines of removal in the
// object, so that a restart loses nothing. It hands over to internal/controller/boundendpoint,
// which makes Services of the objects and asks Set which endpoints are online.
//
// What is never done: remove anything before the first complete list, or because a list or a watch
// failed. What waits: a mass of removals, for a second list, and every removal by another account's
// lists, until that account is accepted.
package endpointsync
