// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// Forwarder is an endpoint whose connections go to an upstream.
type Forwarder struct{ *running }

// Forward makes the URL an endpoint of the account and forwards its connections to an upstream, as
// the command fairlead does: PORT of this machine, HOST:PORT, or a URL without a path, https
// included. It returns when the endpoint is online, and its errors are those of [Listen]. While the
// upstream is down, callers of an http URL get a 502, connections to a tcp URL are closed.
//
// The endpoint lives until Close, the end of ctx, or a refusal for good.
func Forward(ctx context.Context, url, upstream string, opts ...Option) (*Forwarder, error) {
	var opt endpointOptions
	for _, o := range opts {
		o.applyEndpoint(&opt)
	}
	e, err := opt.endpointAt(url)
	if err != nil {
		return nil, publicError(err)
	}
	if e.Seal != nil && e.URL.Scheme != "tcp" {
		return nil, publicError(account.Invalid(authority.FieldSealed, opt.seal, "Forward seals tcp endpoints only: "+
			"leave out WithSeal, or serve requests in this program with Listen"))
	}
	scheme := e.URL.Scheme
	if scheme == "https" { // the callers' scheme; the upstream's is in its own URL
		scheme = "http"
	}
	protocol := e.Upstream.Protocol
	if e.Upstream, err = agent.ParseUpstream(scheme, upstream); err != nil {
		return nil, publicError(err)
	}
	if err := e.Upstream.SetTrust(opt.upstreamTrust, opt.upstreamName); err != nil {
		return nil, publicError(err)
	}
	if err := e.Upstream.SetProxyProtocol(opt.proxyProtocol); err != nil {
		return nil, publicError(err)
	}
	e.Upstream.Protocol = cmp.Or(protocol, e.Upstream.Protocol)
	r, err := start(ctx, opt, e)
	if err != nil {
		return nil, err
	}
	return &Forwarder{r}, nil
}

// Close ends the endpoint, then gives open connections the time of [WithDrainTimeout] to end.
func (f *Forwarder) Close() error {
	f.stop(net.ErrClosed)
	<-f.ended
	return nil
}

// Done returns a channel that is closed when the endpoint has ended.
func (f *Forwarder) Done() <-chan struct{} { return f.ended }

// Wait waits until the endpoint has ended. It returns nil after Close or the end of the context, an
// [*Error] after a refusal for good.
func (f *Forwarder) Wait() error {
	<-f.ended
	if errors.Is(f.endErr, net.ErrClosed) {
		return nil
	}
	return f.endErr
}

// URL returns the endpoint's URL as the service has it.
func (f *Forwarder) URL() string { return f.current().URL }

// EndpointID returns the endpoint's id. It stays the same over reconnects.
func (f *Forwarder) EndpointID() string { return f.current().EndpointID }
