// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the data plane: a chain of forwarder, edge and agent, each a process of its own, that carries a client's bytes through
// two tunnels, beside the same chain with one TLS connection per connection and hop, and beside plain TCP relays.
//
// What comes in: nothing; `make bench` runs it in under a minute, on loopback. What goes out: one table whose rows were taken in turns in
// one run, so that their ratios mean something on a busy machine. The package has no code but its tests.
package bench
