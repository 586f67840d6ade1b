// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Path is the whole path of a request: forwarder, service, agent, upstream.
type Path struct {
	*Server
	Agent     *Agent
	Forwarder *Forwarder
	Bound     tunnel.Bound
	Transport *http.Transport
}

// NewPath starts a service and a path through it to the upstream.
func NewPath(t testing.TB, upstream http.HandlerFunc, change ...func(*tunnel.Bind)) *Path {
	t.Helper()
	srv := httptest.NewUnstartedServer(upstream)
	srv.Config.DisableGeneralOptionsHandler = true
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return NewPathTo(t, Start(t), srv.Listener.Addr().String(), change...)
}

// NewPathTo starts a path through a running service to the upstream's address.
func NewPathTo(t testing.TB, r *Server, upstream string, change ...func(*tunnel.Bind)) *Path {
	t.Helper()
	b := tunnel.Bind{URL: "http://hello.demo", Binding: "kubernetes", UpstreamURL: "http://" + upstream,
		UpstreamProtocol: "http1"}
	for _, f := range change {
		f(&b)
	}
	p := &Path{Server: r, Agent: r.StartAgent(b, upstream), Forwarder: r.StartForwarder()}
	p.Bound = Receive(t, p.Agent.Bound, "bind")
	p.Transport = p.Forwarder.Transport(p.Bound)
	return p
}

// NewTCPPath starts a service and a path of TCP connections to the upstream's address.
func NewTCPPath(t testing.TB, upstream string) *Path {
	t.Helper()
	return NewTCPPathTo(t, Start(t), upstream)
}

// NewTCPPathTo starts a path of TCP connections through a running service to the upstream's
// address.
func NewTCPPathTo(t testing.TB, r *Server, upstream string) *Path {
	t.Helper()
	return NewPathTo(t, r, upstream, func(b *tunnel.Bind) {
		b.URL, b.UpstreamURL, b.UpstreamProtocol = "tcp://db.demo:5432", "tcp://"+upstream, ""
	})
}
