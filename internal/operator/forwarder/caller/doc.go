// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package caller describes who calls an endpoint and what the cluster's rules say about callers, in
// types without a client of Kubernetes. Packages podidentity and accessrules make them of the
// cluster's objects; the forwarder decides by them, and so does the manager.
package caller
