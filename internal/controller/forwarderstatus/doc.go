// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forwarderstatus owns the manager's knowledge of its forwarders: how many run, which of
// them listen for a hostname, why one does not, and whether they have a session with the service's
// edge.
//
// What comes in: the forwarders' pods, and from each of them the stream of its /status. Whom it
// hands over to: internal/controller/boundendpoint asks for the truth of a hostname,
// internal/controller/registration for the way to the edge; both are told, by name, of hostnames
// whose truth may be another. Everything is in memory and never a connection to somebody's
// upstream: a manager that has just started says that it knows nothing yet.
package forwarderstatus
