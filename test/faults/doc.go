// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tests the manager against a cluster that fails: it runs the manager as assembled
// by internal/operator against a real API server, through a transport that fails, delays or
// truncates requests or kills the manager. After every fault it checks that no foreign Service was
// changed, that the BoundEndpoints are those of the account, that target ports are unique and the
// same in the Services, and that no object of Fairlead's is without an endpoint. Tests only.
package faults
