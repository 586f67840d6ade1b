// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package acme gets certificates for the hosts of public endpoints from an ACME directory (RFC 8555)
// and renews them. It owns the account there, the orders, and the answers to challenges, HTTP-01 and
// TLS-ALPN-01 (RFC 8737).
//
// What comes in: the hosts of endpoints that a grant covers, from internal/service/store, where
// account, certificates and answers lie sealed for all replicas; handshakes and requests with
// challenges, from internal/service/public. Whom it hands over to: the directory, through
// acmez, the client below certmagic. certmagic itself, and autocert, order when a client asks for a
// name; here the store says which hosts are ordered, and which replica orders.
package acme
