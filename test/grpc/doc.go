// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grpc runs gRPC's own interoperability tests through the whole product: service, agent and
// forwarder, each endpoint once with the public and once with the kubernetes binding, to upstreams
// with TLS and without. What comes in: the program of test/interop, client and server of the tests,
// named by FAIRLEAD_INTEROP.
package grpc
