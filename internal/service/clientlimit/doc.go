// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clientlimit limits what one client of the network may have at a time or do per second, and
// what one API key may. A client is an IPv4 address, or an IPv6 /64, which is the smallest network
// that a site is given.
//
// Input: addresses and keys. Output: a decision. What is counted, and how a refusal is answered and
// logged, is up to the callers: internal/service, internal/service/public,
// internal/service/login, internal/service/dashboard, internal/service/apiserver,
// internal/service/backend.
package clientlimit
