// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor owns the walk along the path of a call, from the pod to the upstream, and the
// words for the hop that is broken.
//
// What comes in: an endpoint's URL, a way to run the user's own kubectl, and, where there is an API
// key, a way to ask the account. Whom it hands over to: cmd/fairlead, which prints the Report. It
// reads, changes nothing, and never connects to anybody's upstream: what the forwarders last saw of
// it is told instead. What may not be looked at is unknown, with kubectl's own words, and the walk
// goes on.
package doctor
