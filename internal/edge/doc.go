// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package edge owns the one door through which all traffic enters: Serve takes a client's
// connection, ServeHTTP a request of one that somebody else has parsed, with the endpoint that it
// is for and what is known of its origin.
//
// What comes in: connections whose endpoint is already decided, by the header of a forwarder's
// stream or by a public listener. Nothing that the client sends routes, but through the endpoint's
// traffic policy. A tcp endpoint's bytes are relayed unread. An http endpoint's connection is
// parsed here and only here, HTTP/1.1 or cleartext HTTP/2, and each request goes on over a
// connection that is kept for the next.
//
// Where to: an endpoint's policy runs first (visit.go, lead): it answers, denies, forwards to an
// internal endpoint, whose policy runs too, or to a backend, or lets the endpoint's own have the
// request: its agents or its backend. That gives a route: agents, labelled tunnels, static
// addresses and canned answers to try one after the other (target.go), as long as nothing of what
// the client sent has reached an upstream (attempt.go for requests, opening.go for connections).
// Only the edge opens streams to agents. What cannot be answered from there becomes a page with a
// status, a code of docs/errors.md and a sentence.
//
// A connection lives as long as the context that Serve was given: its end cuts the client, the
// request in flight and the upstream's side of it.
package edge
