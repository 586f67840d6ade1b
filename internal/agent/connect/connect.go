// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connect makes endpoints of the account callable at ports of this machine, as the operator's
// forwarder makes them callable in a cluster. `fairlead connect` hands over URLs and the connection to
// the service; internal/tunnel/forward relays each accepted connection. Nothing but the ports of these
// URLs is reachable: no routes, no names.
package connect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Options say what to call, and how to reach the service. Fields without a comment about a default
// are required.
type Options struct {
	agent.ServerOptions

	Targets      []Target
	Trust        *sealed.Trust // whose agents may answer: connections are sealed; nil = they are plain
	DrainTimeout time.Duration // for open connections, at the shutdown; 0 = 3 s
	Observer     agent.Observer
	Logger       *slog.Logger
}

// Target is an endpoint to call, and the port at which it is called.
type Target struct {
	URL  account.EndpointURL
	Port int // 0 = the URL's own port, or a free one where this process may not listen there
}

// maxLegs is how many replicas of the service a session connects to.
const maxLegs = 3

// connector is what runs. It implements forward.Sessions.
type connector struct {
	opt       Options
	urls      []string
	listeners []*listener
	client    *tunnel.Client
	relay     *forward.Relay
	outages   *agent.Outages
	giveUp    context.CancelCauseFunc // ends the client's run with a *agent.Failure
	conns     sync.WaitGroup
	active    atomic.Int64 // active counts the connections being served.
}

// Run listens and relays until ctx is done. Then it closes the ports, lets open connections finish
// within DrainTimeout, and returns nil. It returns a *agent.Failure when retrying is useless, and
// another error when it cannot listen.
func Run(ctx context.Context, o Options) error {
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 3*time.Second)
	c := &connector{opt: o,
		outages: agent.NewOutages(&agent.Options{ServerOptions: o.ServerOptions, Observer: o.Observer}, "call")}
	defer c.closeListeners()
	for _, to := range o.Targets {
		l, err := listen(ctx, to, o.Observer)
		if err != nil {
			return err
		}
		c.listeners, c.urls = append(c.listeners, l), append(c.urls, to.URL.String())
	}
	o.Observer.Observe(agent.Starting{Version: version.String(), Server: o.Server})
	for _, l := range c.listeners {
		o.Observer.Observe(agent.Listening{URL: l.URL.String(), Address: l.address()})
	}
	return c.run(ctx)
}

func (c *connector) closeListeners() {
	for _, l := range c.listeners {
		_ = l.Close()
	}
}

func (c *connector) run(ctx context.Context) error {
	session, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	conns, cut := context.WithCancel(session)
	defer cut()
	c.giveUp, c.relay = giveUp, &forward.Relay{Sessions: c, Timing: forward.DefaultTiming(), Context: conns}
	c.client = tunnel.NewClient(tunnel.ClientConfig{
		Address: c.opt.Address, TLS: c.opt.TLS, DialContext: c.opt.DialServer, Hello: c.hello,
		MaxBackoff: cmp.Or(c.opt.MaxBackoff, 2*time.Second), OnUp: c.onUp, OnDown: c.onDown, MaxLegs: maxLegs,
		Logger: c.opt.Logger, Authorities: c.opt.Authorities,
	})
	ended := make(chan error, 1)
	go func() { ended <- c.client.Run(session) }()
	accepting, stop := context.WithCancel(session)
	defer stop()
	c.conns.Go(func() { c.relay.KeepSpares(accepting) })
	for _, l := range c.listeners {
		c.conns.Go(func() { c.accept(accepting, l) })
	}
	select {
	case err := <-ended:
		stop()
		c.closeListeners()
		cut()
		c.conns.Wait()
		return c.finalError(session, err)
	case <-ctx.Done():
	}
	stop()
	c.drain()
	cut()
	c.conns.Wait()
	giveUp(nil)
	if err := <-ended; err != nil {
		c.opt.Logger.Debug("ending the last session", "error", err)
	}
	c.opt.Observer.Observe(agent.Stopped{ServerTold: true})
	return nil
}

// drain closes the ports and lets open connections finish. The edge, which is told, ends the
// keep-alive of http connections.
func (c *connector) drain() {
	c.closeListeners()
	n := int(c.active.Load())
	if n == 0 {
		return
	}
	if s := c.client.Session(); s != nil {
		_ = s.Drain(c.opt.DrainTimeout)
	}
	c.opt.Observer.Observe(agent.Stopping{Connections: n, Timeout: c.opt.DrainTimeout})
	done := make(chan struct{})
	go func() { c.conns.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(c.opt.DrainTimeout):
	}
}

// Session implements forward.Sessions, as Live does.
func (c *connector) Session(ctx context.Context) (*tunnel.Session, error) { return c.client.Wait(ctx) }

// Live returns the established session, or nil.
func (c *connector) Live() *tunnel.Session { return c.client.Session() }

func (c *connector) hello() tunnel.Hello {
	return tunnel.Hello{Role: tunnel.RoleForwarder, Token: c.opt.Token(), ClientVersion: version.String(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, URLs: c.urls}
}

func (c *connector) onUp(_ context.Context, s *tunnel.Session) error {
	c.outages.End(true)
	w := s.Welcome()
	c.opt.Observer.Observe(agent.Connected{SessionID: w.SessionID, Server: c.opt.Server,
		ServerVersion: w.ServerVersion, AccountID: w.AccountID, Region: w.Region, Carrier: s.Carrier()})
	return nil
}

// onDown is called when a session is lost or the server drains it, and after each failed attempt.
func (c *connector) onDown(err error, retryIn time.Duration) {
	if f := c.failureOf(err); f != nil {
		c.giveUp(f)
		return
	}
	c.outages.Report(err, retryIn)
}

// finalError returns why the client stopped by itself.
func (c *connector) finalError(session context.Context, err error) error {
	if cause := context.Cause(session); cause != nil {
		return cause
	}
	if f := c.failureOf(err); f != nil {
		return f
	}
	return err
}

// failureOf returns the failure when err ends the client; nil when a retry may help. A server that
// knows no forwarders without an operator asks for one.
func (c *connector) failureOf(err error) *agent.Failure {
	if refused, ok := errors.AsType[*tunnel.Error](err); ok && slices.ContainsFunc(refused.Errors,
		func(f tunnel.FieldError) bool { return f.Field == "operator_id" }) {
		return &agent.Failure{Reason: agent.ReasonStopped, Cause: err,
			Msg: c.opt.Server + " does not know `fairlead connect`: update the server"}
	}
	return c.outages.FailureOf(err, strings.Join(c.urls, ", "))
}
