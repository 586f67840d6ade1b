// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnel owns the session protocol between the service and those who dial it: agents and forwarders.
package tunnel

// ALPN is the protocol's name and version in the TLS handshake.
const ALPN = "fairlead/1"
