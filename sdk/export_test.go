// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// OpenedConn returns the caller's end of a connection, and what waits until it is closed.
func OpenedConn(st *tunnel.Stream) (c *Conn, wait func(context.Context)) {
	c = newConn(st, Addr("caller"))
	return c, c.waitClosed
}
