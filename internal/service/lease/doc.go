// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lease limits how long a replica serves people who logged in without an answer of the
// store.
//
// What comes in: when beats of the replica began that the store answered, and when comparisons
// began of what is being served with the store. What goes out: whether both are recent enough. A
// session that another replica ends is then over here, too, after the lease's length at the latest,
// whatever has happened to this replica: a network that is cut, a paused process, a suspended
// machine.
package lease
