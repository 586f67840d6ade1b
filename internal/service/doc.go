// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service is the assembly of fairlead-server: it opens, joins, runs and closes its parts,
// which are data, people, edge, replicas, observability and control (API, agents, forwarders).
//
// What comes in: Options, as cmd/fairlead-server reads them from flags and environment. What it
// makes: the store, the certificate, one TLS listener whose connections ALPN tells apart (tunnel
// sessions to internal/service/tunnelserver, HTTP to internal/service/apiserver), the edge that
// carries traffic between forwarders and agents, health and metrics on a listener of their own, and
// a stop that lets live traffic end first.
package service
