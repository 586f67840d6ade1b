// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boundendpoint reconciles a BoundEndpoint: its Services and its status.
//
// BoundEndpoint --> upstream Service (ClusterIP, operator's namespace)
//
// --> target Service (ExternalName, the hostname's namespace)
//
// --> status
//
// Where the projection is endpointSlice, there is no upstream Service: the target Service is a
// ClusterIP without a selector, with EndpointSlices of the forwarders' addresses, which
// internal/operator/controller/forwarderaddresses provides. switching.go changes the projection of
// a hostname.
//
// A BoundEndpoint with spec.cluster, which carries the ports of a Service that another cluster
// exports, has no Services: only its status is written, for which forwarders wait.
//
// Inputs: the objects that internal/operator/controller/endpointsync writes, events of Services and
// Namespaces, and, in memory, the account's availability of a hostname and the status of the
// forwarders. Layout builds the desired objects as pure functions, serviceWriter and sliceWriter
// write them, projector and switcher decide which, statusWriter reports. Pods' connections reach
// internal/operator/forwarder through the upstream Service, or the slices.
//
// How Services are written: the first write is a Create, so that nothing can be overwritten; a
// repair is a full Update of an owned Service with its resourceVersion; a deletion carries UID and
// resourceVersion. A Service of another owner is never written or deleted. Server-side apply would
// take over a foreign Service when forced, and leave added ports when not.
//
// Ownership (services.go): a Service is ours if it carries both marks of
// internal/operator/controller/installation, label and place. One that lost or changed one mark is
// still ours if it is the object whose UID the BoundEndpoint's status records; a copy and a Service
// made by hand have another UID. One that lost both marks, or carries those of another
// installation, is treated as foreign and left alone.
package boundendpoint
