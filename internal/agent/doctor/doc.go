// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor checks each hop of a call, from the pod to the upstream, and explains the broken
// one, in the cluster that calls and, where an AgentEndpoint exports the endpoint, in that one.
//
// Input: an endpoint's URL or an AgentEndpoint's name, a runner of the user's own kubectl, and,
// with an API key, a function that lists the account's endpoints. Output: a Report, which
// cmd/fairlead prints. The checks change nothing and never connect to an upstream; they report the
// last result that the forwarders have. A hop that may not be read is Unknown, with kubectl's
// message, and the checks continue. A public endpoint is checked without a cluster, by RunPublic.
package doctor
