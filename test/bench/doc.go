// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the data plane: a chain of forwarder, server and agent, each the real
// thing in a process of its own, beside the same chain with one TLS connection per connection and
// hop, beside three plain splicing relays, and, for http, beside three HAProxies.
//
// What comes in: nothing; `make bench` runs it in minutes, on loopback. What goes out: one table,
// whose rows were taken in turns in one run, so that their ratios mean something on a busy machine,
// and the same as JSON; `make bench-check` holds it against the goals and against baseline.json.
// The package has no code but its tests.
package bench
