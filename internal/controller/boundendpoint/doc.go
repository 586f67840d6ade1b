// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boundendpoint owns the Services of a BoundEndpoint and its status.
//
//	BoundEndpoint --> upstream Service (ClusterIP, operator's namespace) + target Service (ExternalName, the hostname's namespace) --> status
//
// What comes in: objects that internal/controller/endpointsync wrote, events of Services and
// Namespaces, and, in memory, what the account says about a hostname. objects.go says, as pure
// functions, what Services should be; services.go writes them; status.go reports. Pods' connections
// then reach internal/forwarder by way of the upstream Service.
//
// How Services are written: the first write is a Create, so that nothing can be overwritten; a
// repair is a full Update of what is ours, with its resourceVersion; a deletion carries UID and
// resourceVersion. A Service that is not ours is never written nor deleted. Server-side apply would
// take over a foreign Service when forced, and leave added ports when not.
//
// Whose a Service is (ownership.go): ours if it carries both marks of
// internal/controller/installation, label and place. One that has lost a mark, or had it changed,
// is still ours if it is the very object that the BoundEndpoint's status records by UID; a copy,
// and a Service made by hand, has another UID. One that lost both marks, or carries those of
// another installation, was given away and is left alone from then on, as every foreign Service is.
package boundendpoint
