// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Resumed reports whether the TLS session was resumed.
func (c *Conn) Resumed() bool { return c.tls.ConnectionState().DidResume }

// UseTickets makes connections to an endpoint use the tickets that another Trust has for an
// endpoint of its own.
func (t *Trust) UseTickets(u account.EndpointURL, other *Trust, of account.EndpointURL) {
	t.config(u).ClientSessionCache = other.configs[of].ClientSessionCache
}

// Peer returns the public key of the agent.
func (c *Conn) Peer() trust.Pin { return keyOf(c.tls.ConnectionState().PeerCertificates[0]) }
