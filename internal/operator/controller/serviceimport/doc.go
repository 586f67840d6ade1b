// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceimport imports the Services that clusters of the account export (KEP-1645): for
// each exported name a ServiceImport in every cluster that has the namespace.
//
// exports of a name --> ServiceImport (what CoreDNS and people read)
//
// --> derived Service (its ClusterIPs are the ServiceImport's)
//
// --> one EndpointSlice for each source cluster and family of addresses: the forwarders, with the
// target ports of that cluster's ports
//
// A headless import has neither: each of its pods has a Service with slices of its own, and slices
// that DNS reads list the ClusterIPs of these Services.
//
// Inputs: the exports and their merge (internal/operator/controller/endpointsync and
// internal/clusterset), the target ports in BoundEndpoints named <name>.<namespace>.<cluster id>
// (internal/operator/controller/boundendpoint), and the forwarders' addresses
// (internal/operator/controller/forwarderaddresses). Pods' connections reach
// internal/operator/forwarder through the slices.
//
// A ServiceImport is updated in place while any cluster exports the name; ports that go, go from
// the derived Service last. Objects of another owner are never written or deleted. The CRD is the
// user's: an informer of its own reads ServiceImports as soon as the API server has them, so that a
// missing CRD delays nothing else. While the exports are not known, only the addresses in existing
// slices are kept current.
package serviceimport
