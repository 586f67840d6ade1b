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

// inspection records what http endpoints carry; without Options.Inspect nothing.
type inspection struct{ opt *Options }

// tap returns what the relay reads and writes for a stream: with a recorder and HTTP, a tap of it.
// end must be called with the relay's error.
func (i inspection) tap(s *spec, st *tunnel.Stream, c Connection) (stream relay.HalfCloser, end func(error)) {
	if i.opt.Inspect == nil || !c.HTTP {
		return st, func(error) {}
	}
	tap := i.opt.Inspect.Tap(st, i.info(s, st.Header()))
	return tap, tap.End
}

// tapUpstream returns the connection to the upstream of a sealed http endpoint: with a recorder, a tap of
// it.
func (i inspection) tapUpstream(s *spec, id string, conn relay.HalfCloser) relay.HalfCloser {
	if i.opt.Inspect == nil {
		return conn
	}
	return i.opt.Inspect.TapUpstream(conn, i.info(s, tunnel.OpenHeader{EndpointID: id}))
}

// addUnreached records a stream that is refused because its upstream cannot be reached, with the
// bytes that have come so far.
func (i inspection) addUnreached(s *spec, st *tunnel.Stream, c Connection, start time.Time, cause string) {
	if i.opt.Inspect == nil || !c.HTTP {
		return
	}
	var sent []byte
	if st.Buffered() > 0 {
		sent, _ = st.Next() // does not wait
	}
	i.opt.Inspect.AddUnreached(i.info(s, st.Header()), start, sent, cause)
}

func (i inspection) info(s *spec, h tunnel.OpenHeader) inspect.Info {
	info := inspect.Info{
		EndpointID: h.EndpointID, EndpointURL: s.info.DisplayName(), HTTP2: s.Upstream.Protocol == ProtocolHTTP2,
		Dial: func(ctx context.Context) (net.Conn, error) { return i.opt.dialUpstream(ctx, s, upstreamTimeout) },
	}
	if host, _, err := net.SplitHostPort(h.ClientAddr); err == nil {
		info.Caller.IP = host
	}
	if p := h.Pod; p != nil {
		info.Caller.Pod, info.Caller.Namespace, info.Caller.ServiceAccount = p.Name, p.Namespace, p.ServiceAccount
	}
	return info
}

// setEndpoint tells the recorder about an endpoint that is bound.
func (i inspection) setEndpoint(s *spec, e *Online) {
	if i.opt.Inspect == nil || !s.info.isHTTP() {
		return
	}
	i.opt.Inspect.SetEndpoint(inspect.Endpoint{ID: e.EndpointID, URL: s.info.DisplayName(), Name: s.info.Name,
		AlsoAt: e.AlsoAt(), Upstream: s.info.Upstream, Online: true, Marked: inspect.MarkedBy(s.TrafficPolicy)})
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
