// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package public serves the public listeners, over which clients anywhere reach the endpoints with
// the public binding by HTTP and HTTPS.
//
// What comes in: connections of unauthenticated clients, perhaps through trusted proxies that state
// the client (PROXY protocol, X-Forwarded-For). A connection is counted, its TLS handshake done
// with the certificate for the requested name, its requests read by net/http behind package
// framing, so that no program before or behind it sees other requests in the same bytes. Whom it
// hands over to: the endpoint at the request's host and port, through Options.ServeEndpoint. All
// hosts without an endpoint get the same page.
package public
