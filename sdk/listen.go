// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"math"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	defaultBacklog = 128
	maxAcceptWait  = 10 * time.Second // how long a connection waits for an Accept
)

// Listener is the type of the listeners that [Listen] returns.
type Listener struct {
	*running

	addr     Addr
	slots    chan struct{} // a token for each connection that waits for an Accept
	arriving chan *Conn
}

var _ net.Listener = (*Listener)(nil)

// Listen makes the URL an endpoint of the account and returns a listener for the connections to it,
// of type *[Listener]. Each is a *[Conn]: of a tcp URL one for every connection of a caller; of an
// http or https URL one over which the service sends requests, for http.Serve.
//
// Listen returns when the endpoint is online. It returns an [*Error] when the service refuses it: the
// authtoken is wrong or may not bind the URL, the URL is taken, an option is invalid. A service that
// does not answer is tried again until ctx is done, or for [WithConnectTimeout].
//
// Afterwards the listener outlives restarts of the service and outages of the network: the endpoint
// keeps its id, and Accept goes on. If the service refuses the endpoint for good, Accept returns that
// [*Error]. The end of ctx ends the listener as Close does.
func Listen(ctx context.Context, url string, opts ...Option) (net.Listener, error) {
	opt := endpointOptions{backlog: defaultBacklog}
	for _, o := range opts {
		o.applyEndpoint(&opt)
	}
	opt.agent.DrainTimeout = math.MaxInt64 / 2 // the connections are their owner's to end
	e, err := opt.endpointAt(url)
	if err == nil && opt.backlog < 1 {
		err = account.Errorf(account.CodeInvalid, "backlog %d: must be at least 1", opt.backlog)
	}
	if err != nil {
		return nil, publicError(err)
	}
	l := &Listener{addr: Addr(e.URL.HostPort()), slots: make(chan struct{}, opt.backlog), arriving: make(chan *Conn)}
	ready := make(chan struct{})
	e.Serve = func(ctx context.Context, st agent.Incoming) {
		<-ready
		if l.running == nil { // Listen has failed meanwhile
			_ = st.Refuse(tunnel.RefusedDraining)
			return
		}
		l.serve(ctx, st)
	}
	defer close(ready)
	if l.running, err = start(ctx, opt, e); err != nil {
		return nil, err
	}
	return l, nil
}

// serve waits until Accept takes the stream, then until its connection is closed.
func (l *Listener) serve(ctx context.Context, st agent.Incoming) {
	select {
	case l.slots <- struct{}{}:
	default:
		_ = st.Refuse(tunnel.RefusedUpstream)
		return
	}
	wait := maxAcceptWait
	if d := st.Header().Deadline; d > 0 {
		wait = min(wait, d*9/10) // later the opener has given up
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	c := newConn(st, l.addr)
	accepted, code := false, tunnel.RefusedUpstream
	select {
	case l.arriving <- c:
		accepted = true
	case <-timer.C:
	case <-l.told:
		code = tunnel.RefusedDraining
	case <-ctx.Done():
	}
	<-l.slots
	if !accepted {
		_ = st.Refuse(code)
		return
	}
	c.waitClosed(ctx)
}

// Accept waits for the next connection. After Close, or the end of the context, it returns an error
// that is net.ErrClosed; after a refusal of the endpoint an [*Error].
func (l *Listener) Accept() (net.Conn, error) {
	for {
		select {
		case c := <-l.arriving:
			if err := c.stream.Accept(); err != nil { // the opener is gone
				_ = c.Close()
				continue
			}
			return c, nil
		case <-l.told:
			return nil, &net.OpError{Op: "accept", Net: "fairlead", Addr: l.addr, Err: l.endErr}
		}
	}
}

// Close ends the endpoint, for which the service has 2 s, and then Accept. What the service has sent
// before is still accepted. Open connections stay open until they are closed: http.Server.Shutdown
// works as with another listener.
func (l *Listener) Close() error {
	l.stop(net.ErrClosed)
	<-l.told
	return nil
}

// Addr returns the host and port of the URL.
func (l *Listener) Addr() net.Addr { return l.addr }

// URL returns the endpoint's URL as the service has it.
func (l *Listener) URL() string { return l.current().URL }

// EndpointID returns the endpoint's id. It stays the same over reconnects.
func (l *Listener) EndpointID() string { return l.current().EndpointID }

// Addr is the address of an endpoint: host:port of its URL.
type Addr string

// Network returns "fairlead".
func (Addr) Network() string { return "fairlead" }

// String returns host:port.
func (a Addr) String() string { return string(a) }
