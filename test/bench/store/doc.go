// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store measures the account's store on both engines: what a list page, a get and a create
// cost with 1,000 and with 100,000 endpoints, in turns in the same run, and how long 50 creates a
// second take to reach 100 watchers of the real API; what a look at a session and a search cost
// among 10,000 people; how many agents a second may connect at once, with one server and with three
// replicas.
//
// What comes in: nothing; `make bench` runs it. What goes out: figures beside the goals they have,
// and a failed benchmark where one is missed. The package has no code but its tests.
package store
