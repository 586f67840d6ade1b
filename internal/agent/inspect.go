// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"

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
	tap := a.opt.Inspect.Tap(st, info)
	return tap, tap.End
}

// observeInspected returns observe that also tells the Recorder about the endpoints.
func observeInspected(r *inspect.Recorder, observe func(Event)) func(Event) {
	return func(e Event) {
		switch e := e.(type) {
		case Online:
			if e.isHTTP() {
				r.SetEndpoint(inspect.Endpoint{ID: e.EndpointID, URL: e.DisplayName(), Name: e.Name,
					Upstream: e.Upstream, Online: true})
			}
		case Retrying:
			r.SetOffline("")
		case Removed:
			r.SetOffline(e.DisplayName())
		}
		observe(e)
	}
}
