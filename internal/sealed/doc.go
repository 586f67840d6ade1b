// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sealed carries connections to sealed endpoints: TLS 1.3 from the caller's forwarder to the
// agent, through a service that relays ciphertext and that nothing here believes. A forwarder's
// Trust decides whose certificate may answer for an endpoint; the certificate names the account and
// the endpoint's URL in a URI. The service's part is to find the agent.
//
// What comes in: two ends of a tunnel stream that the service relays. What goes out: a Conn at each
// end, for internal/tunnel/relay. The flow, within the stream:
//
//	forwarder: Trust                        agent: Identity
//	  | <- endpoint id, by the service         |  in the clear: ReadHint, to name agents that were tried
//	  | TLS 1.3, ALPN fairlead-seal/1       -> |
//	  |                                        |  the forwarder has checked key, URL and account
//	  | header {url, pod, ...}              -> |  Accept: the URL is the certificate's
//	  | <- {opened} or {refused, text}         |  Incoming: Open once the upstream is there, or Refuse
//	  | bytes of caller and upstream           |
//	  | close_notify, and the stream's end     |  CloseWrite: one without the other is no end
//
// An abort ends the stream below and sends no alert: the peer reads an error, never io.EOF.
package sealed
