// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exporter is the process of `fairlead-operator exporter`: it keeps an endpoint of the
// account for each AgentEndpoint of its cluster, whose Service it dials.
//
// Options come in from cmd/fairlead-operator, objects from the API server. Every replica reconciles
// every object into an agent.Endpoint for internal/agent, which binds it;
// internal/operator/exporter/upstream resolves and dials Services. The replica that holds the Lease writes
// the objects' status and events. An API server that is away unbinds nothing.
package exporter
