// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnelserver owns the live tunnel sessions of the service: who is connected, by which
// credential, and which session holds which endpoint now.
//
// What comes in: hellos, binds and streams from internal/tunnel. They are checked against the
// account's credentials, rules and endpoints (the interfaces of internal/account). Whom it hands
// over to: rows go to account.Binder; a forwarder's stream that passed the checks goes, with its
// endpoint, to the function that the assembly gives (the edge); the edge asks Choose who serves a
// URL, which in a pool is the agent with the fewest connections, and opens streams to it.
package tunnelserver
