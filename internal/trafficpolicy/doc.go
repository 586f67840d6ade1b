// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trafficpolicy owns the language of traffic policies: rules of CEL expressions and actions
// for the connections and requests of an endpoint. Text comes in and is compiled when it is set,
// with every mistake named by line and column; a Policy goes out to the edge, which asks it about
// each connection (Connect) and lets it serve each request (ServeHTTP). Where traffic then goes on
// is the edge's business: the policy only names the target.
//
// An action is read from its config and checked (provision) when the policy is compiled, and runs
// (serve) for a request: it answers, or changes something and calls next. The table in actions.go
// is the closed list of them.
package trafficpolicy
