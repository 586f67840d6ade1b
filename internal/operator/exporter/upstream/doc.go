// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream finds and dials the Services that AgentEndpoints name.
//
// A URL of a spec comes in: Parse turns it into a Ref, Resolve compares that with the Service, and
// Dialer connects with one of the ready addresses of the Service's EndpointSlices. It reads both
// from the cache of internal/operator/exporter, whose index IndexSlices adds. Problems leave as reasons of
// api/v1alpha1 with a sentence.
package upstream
