// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framing checks how requests are framed, before net/http reads them: where a
// head and a body end (RFC 9112) and whether an HTTP/2 header block (RFC 9113, section 6.10) ends
// in time. Both listeners of the edge use it, the public one and that for forwarders, so no request
// passes one of them and not the other.
//
// What comes in: a connection with a client's bytes. Whom it hands over to: an http.Server, which
// reads them from Conn. What every program reads alike passes unchanged; a head that is refused is
// replaced by one that CheckRequest refuses. CheckRequest is the second half: what net/http
// accepts although other programs may read it differently. Conn also lets a client that closes its
// sending side after its request get its answer.
package framing
