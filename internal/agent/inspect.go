// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// inspected returns what the relay reads and writes for a stream: with Options.Inspect and HTTP, a
// tap of it. end must be called with the relay's error.
func (a *Agent) inspected(s *spec, st *tunnel.Stream, c Connection) (stream relay.HalfCloser, end func(error)) {
	if a.opt.Inspect == nil || !c.HTTP {
		return st, func(error) {}
	}
	tap := a.opt.Inspect.Tap(st, a.inspectInfo(s, st))
	return tap, tap.End
}

// inspectRefused records a stream that is refused because its upstream cannot be reached, with the
// bytes that have come so far.
func (a *Agent) inspectRefused(s *spec, st *tunnel.Stream, start time.Time, cause string) {
	var sent []byte
	if st.Buffered() > 0 {
		sent, _ = st.Next() // does not wait
	}
	a.opt.Inspect.AddUnreached(a.inspectInfo(s, st), start, sent, cause)
}

func (a *Agent) inspectInfo(s *spec, st *tunnel.Stream) inspect.Info {
	h := st.Header()
	info := inspect.Info{
		EndpointID: h.EndpointID, EndpointURL: s.info.DisplayName(), HTTP2: s.Upstream.Protocol == ProtocolHTTP2,
		Dial: func(ctx context.Context) (net.Conn, error) { return a.dial(ctx, s, upstreamTimeout) },
	}
	if host, _, err := net.SplitHostPort(h.ClientAddr); err == nil {
		info.Caller.IP = host
	}
	if p := h.Pod; p != nil {
		info.Caller.Pod, info.Caller.Namespace, info.Caller.ServiceAccount = p.Name, p.Namespace, p.ServiceAccount
	}
	return info
}

// inspectEndpoint tells the Recorder about an endpoint that is bound.
func (a *Agent) inspectEndpoint(s *spec, id string) {
	if a.opt.Inspect == nil || !s.info.isHTTP() {
		return
	}
	a.opt.Inspect.SetEndpoint(inspect.Endpoint{ID: id, URL: s.info.DisplayName(), Name: s.info.Name,
		Upstream: s.info.Upstream, Online: true, Marked: inspect.MarkedBy(s.TrafficPolicy)})
}

// inspectingObserver is an Observer that also tells the recorder which endpoints are offline.
type inspectingObserver struct {
	Observer
	recorder *inspect.Recorder
}

// Observe implements Observer.
func (o *inspectingObserver) Observe(e Event) {
	switch e := e.(type) {
	case Retrying:
		o.recorder.SetOffline("")
	case Removed:
		o.recorder.SetOffline(e.DisplayName())
	}
	o.Observer.Observe(e)
}
