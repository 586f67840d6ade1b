// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"github.com/fairlead-dev/fairlead/internal/account"
)

// Resumed reports whether the TLS session was resumed.
func (c *Conn) Resumed() bool { return c.tls.ConnectionState().DidResume }

// UseTickets makes connections to an endpoint use the tickets that another Trust has for an
// endpoint of its own.
func (t *Trust) UseTickets(u account.EndpointURL, other *Trust, of account.EndpointURL) {
	t.config(u).ClientSessionCache = other.configs[of].ClientSessionCache
}
