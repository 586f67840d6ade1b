// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traffic keeps in memory what flowed lately: time series of accounts, endpoints and
// backends, the last requests of endpoints, and why logins failed.
//
// What comes in: the counters of a Table, which internal/service counts requests and connections
// in, finished requests, and failed logins of internal/service/login. It hands over to the
// dashboard, summed over all replicas: each answers for itself, through internal/service/peers.
//
// Counting takes no lock that another request may hold, and allocates nothing. Every 10 s a
// Recorder reads the counters, and appends what has changed to the series, a few bytes for each
// step with traffic. All is bounded: when the series need more than their share of memory, those
// of the objects with the least traffic are dropped, and the traffic of these is summed.
package traffic
