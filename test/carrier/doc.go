// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package carrier tests what the networks between an agent and the service let pass: an agent with
// a real service in this process, through real proxies (Squid, tinyproxy, microsocks) and through a
// balancer that ends TLS. Over each way it carries requests, an event stream, a long poll, a
// WebSocket and another upgrade. Through the balancer go the operator's processes, too, at a real API
// server.
package carrier
