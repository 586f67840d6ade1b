// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package edge serves all traffic to endpoints: Serve takes a client's connection, ServeHTTP a
// request that another HTTP server has parsed, each with its endpoint and a ClientInfo. The service
// has an edge; the agent of a sealed endpoint has one of its own (internal/agent/sealededge).
//
// What comes in: connections whose endpoint is already decided, by the header of a forwarder's
// stream or by a public listener. Nothing that the client sends chooses an endpoint, except through
// the endpoint's traffic policy. A tcp endpoint's bytes are relayed unread. An http endpoint's
// connection is parsed here and only here, HTTP/1.1 or cleartext HTTP/2, and its requests go to the
// upstream over kept connections.
//
// Whom it hands over to: an endpoint's policy runs first (route.go): it answers, denies, forwards
// to an internal endpoint, whose policy runs too, or to a backend, or leaves the request to the
// endpoint's own agents or backend. That gives a route: agents, labelled tunnels, static
// addresses and fixed responses to try one after the other, as long as nothing of what the client
// sent has reached an upstream (roundtrip.go for requests, tcp.go for connections). Only
// the edge opens streams to agents. A failure becomes a page with a status, a code of
// docs/fix/errors.md and a sentence.
//
// A connection lives as long as the context that Serve was given: its end aborts the client, the
// request in flight and the upstream's side of it.
package edge
