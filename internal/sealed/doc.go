// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sealed carries connections to sealed endpoints: TLS 1.3 from the caller's forwarder to the
// agent, through a service that relays ciphertext and that nothing here believes. A forwarder's
// Trust says whose certificate may answer for an endpoint; the certificate names the account and the
// endpoint's URL in a URI. The service's part is to find the agent.
package sealed
