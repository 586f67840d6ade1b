// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forwarder owns the way of a pod's connection out of the cluster: it listens on the ports
// of the BoundEndpoints and relays each accepted connection as one stream of the tunnel to the
// service's edge.
//
// What comes in: BoundEndpoints (which ports, whose), the KubernetesOperator (as whom to speak to
// the edge), the forwarder's own EndpointSlices (whether pods still come here), and connections.
// Whom it hands over to: internal/tunnel carries the streams, internal/relay the bytes; the edge
// decides what becomes of a stream. It writes nothing to the cluster and needs no manager that is
// alive.
//
//	BoundEndpoints -> claim (pure) -> listeners -> accept -> open (hold, header, first bytes, OPENED) -> relay.Join
//	                                                              '-> no edge, refused: 503 page or GOAWAY for http, reset for tcp
//
// A stream names its endpoint, hostname and port, and the edge refuses what does not fit, so a port
// that changed hands can never lead to the endpoint that had it before.
package forwarder
