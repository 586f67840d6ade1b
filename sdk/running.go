// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

// running is an endpoint with the agent that serves it.
type running struct {
	opt  endpointOptions
	stop context.CancelCauseFunc

	up     chan struct{} // closed when the endpoint is online for the first time
	told   chan struct{} // closed when the service has no more connections for the endpoint
	ended  chan struct{} // closed when the agent has ended
	endErr error         // why, set before told is closed

	upOnce, toldOnce sync.Once
	mu               sync.Mutex
	online           Online
	lastCause        string
}

// start runs an agent with one endpoint and waits until it is online. ctx ends it.
func start(ctx context.Context, opt endpointOptions, e agent.Endpoint) (*running, error) {
	o, err := opt.agentOptions()
	if err != nil {
		return nil, publicError(err)
	}
	r := &running{opt: opt, up: make(chan struct{}), told: make(chan struct{}), ended: make(chan struct{})}
	o.Endpoints, o.Observer = []agent.Endpoint{e}, &observer{r}
	runCtx, stop := context.WithCancelCause(ctx)
	r.stop = stop
	go r.run(runCtx, agent.New(o))
	var timeout <-chan time.Time
	if opt.connectTimeout > 0 {
		timer := time.NewTimer(opt.connectTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-r.up:
		return r, nil
	case <-r.ended:
	case <-timeout:
		stop(errNotYet)
	}
	<-r.ended
	return nil, r.startError(runCtx)
}

// startError returns why the endpoint did not get online.
func (r *running) startError(ctx context.Context) error {
	if !errors.Is(r.endErr, net.ErrClosed) {
		return r.endErr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Errorf("connecting to the service: %w (%s)", context.Cause(ctx),
		cmp.Or(r.lastCause, "there was no answer yet"))
}

func (r *running) run(ctx context.Context, a *agent.Agent) {
	err := a.Run(ctx)
	if err == nil {
		err = net.ErrClosed
	}
	r.end(publicError(err))
	r.stop(nil)
	close(r.ended)
}

// end reports that no connections come any more. The first error counts.
func (r *running) end(err error) {
	r.toldOnce.Do(func() {
		r.endErr = err
		close(r.told)
	})
}

// observer translates the events of the agent of an endpoint.
type observer struct{ *running }

// Observe implements agent.Observer.
func (r *observer) Observe(e agent.Event) {
	log := r.opt.log()
	switch e := e.(type) {
	case agent.Online:
		online := Online{URL: e.AssignedURL, EndpointID: e.EndpointID, SessionID: e.SessionID,
			Reconnected: e.Reconnected}
		log.Info("endpoint online", "url", online.URL, "endpoint", online.EndpointID, "session", online.SessionID)
		r.mu.Lock()
		r.online = online
		r.mu.Unlock()
		r.report(online)
		r.upOnce.Do(func() { close(r.up) })
	case agent.Retrying:
		log.Warn("endpoint offline", "cause", e.Cause, "code", string(e.Code), "retry_in", e.RetryIn)
		r.mu.Lock()
		r.lastCause = e.Cause
		r.mu.Unlock()
		r.report(Offline{Cause: e.Cause, Code: string(e.Code), RetryIn: e.RetryIn})
	case agent.Draining:
		r.report(Offline{Cause: "the service is about to stop", Code: "DRAINING"})
	case agent.Request:
		r.report(Request{Method: e.Method, Path: e.Path, Status: e.Status, Duration: e.Duration})
	case agent.UpstreamDown:
		log.Warn("upstream down", "upstream", e.Upstream, "cause", e.Cause)
		r.report(UpstreamDown{Cause: e.Cause})
	case agent.UpstreamUp:
		r.report(UpstreamUp{})
	case agent.Stopping:
		r.end(net.ErrClosed)
	}
}

func (r *running) report(e Event) {
	if r.opt.onEvent != nil {
		r.opt.onEvent(e)
	}
}

// current returns the endpoint as it went online last.
func (r *running) current() Online {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.online
}
