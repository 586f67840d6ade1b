// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exporter tests what a user of one namespace can do with an exporter: it must not publish
// Services of other namespaces, take URLs of other teams, or use what belongs to the account.
//
// It runs the exporter against a real API server, with Kubernetes' own controller of
// EndpointSlices, and a real service. It has tests only.
package exporter
