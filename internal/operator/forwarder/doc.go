// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forwarder carries pods' connections out of the cluster: it listens on the target ports of
// the BoundEndpoints and relays each accepted connection as one stream of the tunnel to the
// service's edge.
//
// Inputs: BoundEndpoints (the ports and their URLs), the KubernetesOperator (the operator id for
// the session with the edge), the forwarder's own EndpointSlices (whether pods still connect to
// it), and connections. internal/tunnel/forward relays them, and answers those that no stream opened
// for; the edge decides what to do with a stream. The package writes nothing to the cluster and works
// without a running manager.
//
//	BoundEndpoints -> assignPorts -> listeners -> accept -> forward.Relay.Serve -> stream
//	                                                     '-> no edge, refused: 503 page
//	                                                         for http, reset for tcp
//
// A stream names its endpoint, hostname and port, and the edge refuses a combination that does not
// match, so a port that was assigned anew never leads to the endpoint that had it before.
package forwarder
