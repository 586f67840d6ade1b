// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudendpoint keeps the account's endpoints of type cloud as CloudEndpoints ask for.
//
// CloudEndpoint --> endpoint of the account, with the object as owner
//
// --> status
//
// Inputs: CloudEndpoints, the ConfigMaps of their traffic policies, and the list of the cluster's
// endpoints that internal/operator/exporter/orphans reads. An endpoint is found by the id that this process
// or the status knows, else by URL and owner, so that one whose creation was not answered is
// adopted; an id counts only if its endpoint has the object as owner. It is changed only if it
// differs. An endpoint whose object asks for another URL, or for one that is not admitted, is
// deleted; one whose policy has a mistake keeps its former policy.
//
// The service decides what the exporter's API key may do; its refusals become conditions with the
// object's field.
package cloudendpoint
