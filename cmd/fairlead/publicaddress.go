// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/doctor"
)

// lookupTimeout bounds the look into DNS for one endpoint.
const lookupTimeout = 10 * time.Second

// addressObserver is an agent.Observer that reports public endpoints whose host DNS does not lead
// to the service, with a command that calls them all the same.
type addressObserver struct {
	agent.Observer
	ctx      context.Context // ctx ends the lookups.
	server   string          // server is the service's host:port.
	resolver doctor.Resolver
	lookups  sync.WaitGroup
}

// Observe implements agent.Observer.
func (o *addressObserver) Observe(e agent.Event) {
	o.Observer.Observe(e)
	if online, ok := e.(agent.Online); ok && !online.Reconnected && online.ListenerURL != "" {
		o.lookups.Go(func() { o.lookUp(online) })
	}
}

func (o *addressObserver) lookUp(e agent.Online) {
	u, err := account.ParseBindingURL(account.BindingPublic, e.URL)
	server, _, serverErr := net.SplitHostPort(o.server)
	if err != nil || serverErr != nil {
		return
	}
	ctx, cancel := context.WithTimeout(o.ctx, lookupTimeout)
	defer cancel()
	dns := doctor.ResolvePublic(ctx, o.resolver, u.Host, server)
	if problem := dns.Problem(); problem != "" && ctx.Err() == nil {
		o.Observer.Observe(agent.Unreachable{EndpointInfo: e.EndpointInfo, Cause: problem,
			Command: dns.TryCommand(e.ListenerURL)})
	}
}
