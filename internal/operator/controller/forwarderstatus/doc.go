// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forwarderstatus reads the status of the forwarders: how many run, which of them listen
// for a hostname, why one does not, and whether they have a session with the service's edge.
//
// Inputs: the forwarders' pods, and the stream of /status from each of them.
// internal/operator/controller/boundendpoint reads the Report of a hostname,
// internal/operator/controller/registration the EdgeStatus; both are notified, by name, of
// hostnames whose report may have changed. Everything is kept in memory, and no connection to an
// upstream is ever made: after a start the state is unknown until every forwarder has reported.
package forwarderstatus
