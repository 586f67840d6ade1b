// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/tunnelserver"
)

// agent lets the edge choose who serves an endpoint.
func (s *service) agent(ctx context.Context, ep *account.Endpoint, tried []edge.Agent) (edge.Agent, error) {
	h, err := s.sessions.Choose(ctx, ep, holdings(tried)...)
	if err != nil {
		return nil, err // not h: a nil *Holding is no nil Agent
	}
	return h, nil
}

func holdings(agents []edge.Agent) []*tunnelserver.Holding {
	var all []*tunnelserver.Holding
	for _, a := range agents {
		if h, ok := a.(*tunnelserver.Holding); ok {
			all = append(all, h)
		}
	}
	return all
}
