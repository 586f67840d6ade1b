// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnelserver has the service's live tunnel sessions: which credential opened each, and
// which session has bound which endpoint.
//
// What comes in: hellos, binds and streams from internal/tunnel. It checks them against the
// account's credentials, rules and endpoints (the interfaces of internal/account). What it hands
// over to: rows go to account.Binder; a forwarder's stream that passed the checks goes, with its
// endpoint, to the Edge; the edge calls Choose for the agent that serves a URL, in a pool the one
// with the fewest connections, and opens streams to it.
//
// The parts of a Server call each other one way. A binder uses a holdingsSync and rights, these an
// ender, that a publisher, and all of them the registry: it has sessions and members under one lock.
//
// Several servers may share a store. A session then has connections with some of them: its legs.
// Each of these serves the session's binds of all legs, which it reads from the store when a leg
// comes up, when another server publishes a change (ApplySessions), and in comparisons with the
// store. A session that is ended by the service ends on all servers; one whose connections are lost
// ends with its last leg.
package tunnelserver
