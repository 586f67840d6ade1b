// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceexport exports Services as ServiceExports of the Multi-Cluster Services API ask
// for (KEP-1645).
//
//	ServiceExport, Service, EndpointSlices --> record in the account (an endpoint of type cloud)
//	                                       --> an endpoint of the agent for each TCP port, of a
//	                                           headless Service for each one of each pod
//	records of all clusters                --> conditions of the ServiceExports
//
// Every replica of the exporter reads the objects and binds the ports, through Ports. The replica
// that holds the Lease also watches the records of the account, writes those of its cluster, and
// writes status and events. A record is written when it differs, and deleted at once with its
// ServiceExport; those of ServiceExports that were deleted while no exporter ran are the business
// of internal/operator/exporter/orphans.
//
// The cluster may lack the kind: it is watched from the moment at which the API server has it.
package serviceexport
