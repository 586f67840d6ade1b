// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Renew implements tunnel.Handler.
func (s *Server) Renew(context.Context, *tunnel.Session, string) (time.Time, error) {
	return time.Time{}, &tunnel.Error{Code: tunnel.CodeInvalid,
		Msg: "the session has no token that expires: there is nothing to renew"}
}
