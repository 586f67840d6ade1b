// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package edge owns the one door through which all traffic enters: Serve takes a client's connection, the endpoint that it is for, and what is
// known of its origin.
//
// What comes in: connections whose endpoint is already decided, by the header of a forwarder's stream. Nothing that the client sends routes.
// A tcp endpoint's bytes are joined to the agent's stream, unread. An http endpoint's connection is parsed here and only here, HTTP/1.1 or
// cleartext HTTP/2, and each request goes to an agent over a stream that is kept for the next. Whom it hands over to: the agent that Options.Agent chooses,
// for a connection or a request; only the edge opens streams to agents. What cannot be answered from there becomes a page with a status, a code of docs/errors.md and a sentence.
//
// A connection lives as long as the context that Serve was given: its end cuts the client, the request in flight and the agent's side of it.
package edge
