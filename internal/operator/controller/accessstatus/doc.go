// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accessstatus reports in the status of EndpointAccess objects whether they are valid, what
// enforces them, and whom forwarders denied; and in that of EndpointTrust objects whom they trust,
// whether they contradict each other, what enforces them, and the keys that were seen first.
//
// Inputs: the objects, what internal/operator/controller/forwarderstatus read from the forwarders,
// and the last pass of internal/operator/controller/networkpolicy. Output: conditions and the list
// of denied callers, written on a difference only; the list at most every 30 seconds.
package accessstatus
