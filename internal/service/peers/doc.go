// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peers links the replicas of a service. A replica asks its peers for the agents that it
// has no connection with, relays streams to them over the replica that has one, and tells its peers
// what a commit has ended.
//
// What comes in: the live rows of the registry and the secret key, from internal/service; questions
// and members, from internal/edge; changes, from the code that committed them. What it
// hands over to: Local, which answers for this replica.
//
// Every replica dials every other one at its relay address, with mutual TLS 1.3: the certificates
// are made in memory, signed by a key that is derived from the secret key, and name a replica's id.
// An id counts while it is a row of the registry. ALPN chooses between a session of internal/tunnel
// (fairlead/1), for relayed streams and request lines, and HTTP/2 (h2), for questions and changes.
// A relayed stream is never relayed again.
package peers
