// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package public owns the public edge: the listeners at which everybody reaches the endpoints with
// the public binding, over HTTP and HTTPS.
//
// What comes in: connections of strangers, perhaps through balancers that are trusted to say who
// the client is (PROXY protocol, X-Forwarded-For). A connection is counted, its TLS handshake done
// with the certificate of the name that the client asks for, its requests read by net/http. On
// HTTP/1 every head passes the strict reader of package framing first, so that no program before or
// behind it sees other requests in the same bytes. Whom it hands over to: the endpoint that has the
// request's host and port, through Options.Serve, which is the edge's door. Hosts that nobody has
// get one page, whatever the reason.
package public
