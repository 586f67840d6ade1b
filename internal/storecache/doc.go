// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storecache caches what traffic asks of the store, so that traffic goes on through an
// outage of the store of any length.
//
// What comes in: keys, from the public edge, the edge, forwarders' streams and backends; each Cache
// has a function that reads the store. What goes out: an answer at most TTL old while the store
// answers. While it does not (account.CodeUnavailable, or no answer in time), the last answer, or
// what this process holds in memory if that is newer; callers do not wait for the store's
// time-outs, and the store is asked once a second for each key. Errors of other codes are never
// covered by an older answer.
package storecache
