// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scale measures the operator's manager with 1, 1,000 and 10,000 endpoints: the program
// itself, as a process, between a real API server with etcd (test/support/testenv) and the account's
// real API on a real store.
//
// What comes in: nothing, but FAIRLEAD_BENCH_ENDPOINTS may name other sizes; `make bench` runs it.
// What goes out: a table of figures beside the goals they have, and a failed benchmark where one is
// missed. The times are taken beside those of a bare client that makes the same objects on an API
// server of its own, in the same run. The package has no code but its tests.
package scale
