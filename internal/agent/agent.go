// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Defaults of Options.
const (
	defaultGoodbye = 2 * time.Second
	defaultDrain   = 3 * time.Second
)

// Endpoint is what the agent binds.
type Endpoint struct {
	URL         account.EndpointURL
	Binding     string
	Name        string
	Description string
	Metadata    string
	Pooling     bool // share the URL with the account's other agents that do
}

// Options are what an agent needs. Fields without a comment about a default are required.
type Options struct {
	Server     string        // https://host:port, for messages
	Address    string        // host:port of the server
	TLS        *tls.Config   // from internal/trust
	Token      func() string // the authtoken; called for every session
	InstanceID string        // this installation's name; may be empty
	Endpoint   Endpoint
	Upstream   Upstream

	Observe func(Event) // must not block; called from many goroutines; nil = nobody looks
	Logger  *slog.Logger

	Dial        DialFunc      // upstreams; nil = a net.Dialer
	UpstreamTLS *tls.Config   // roots for https upstreams; nil = the system's
	DialServer  DialFunc      // the server; nil = a net.Dialer, without a proxy
	MaxBackoff  time.Duration // between attempts to reach the server; 0 = 10 s
	Goodbye     time.Duration // how long to wait for the server's answer to the goodbye; 0 = 2 s
	Drain       time.Duration // how long live connections may go on after the goodbye; 0 = 3 s
}

// agent is one run.
type agent struct {
	Options
	client  *tunnel.Client
	giveUp  context.CancelCauseFunc // ends the client's run with a *Failure
	streams streamCount

	firstOnline chan struct{} // closed when the endpoint is bound for the first time

	mu           sync.Mutex
	bindings     map[*tunnel.Session]*binding
	latest       *binding
	resumeSecret string // of the latest bind; never leaves memory but for the next bind
	everOnline   bool
	lastCause    string // of the last Retrying; "" after Online
	upstreamDown bool
}

// Run keeps the endpoint bound and serves it until ctx is done: then it says goodbye, gives live connections a moment, and returns nil. It
// returns a *Failure when going on is useless.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a := &agent{Options: o, giveUp: cancel, bindings: map[*tunnel.Session]*binding{}, firstOnline: make(chan struct{})}
	a.client = tunnel.NewClient(tunnel.ClientConfig{
		Address: o.Address, TLS: o.TLS, DialContext: o.DialServer, Hello: a.hello, MaxBackoff: o.MaxBackoff,
		OnUp: a.up, OnDown: a.down, OnStream: a.serve, OnRequestLine: a.requestLine, Logger: o.Logger,
	})
	a.Observe(Starting{Version: version.String(), Server: o.Server, URL: o.Endpoint.URL.String(), Upstream: o.Upstream.String()})

	ended := make(chan error, 1)
	go func() { ended <- a.client.Run(run) }()
	looked := make(chan struct{})
	go func() { defer close(looked); a.lookOnce(run) }()
	defer func() { cancel(nil); <-looked }()
	select {
	case err := <-ended:
		return a.verdict(run, err)
	case <-ctx.Done():
	}
	told := a.goodbye()
	cancel(nil)
	if err := <-ended; err != nil {
		o.Logger.Debug("ending the last session", "error", err)
	}
	a.streams.wait(context.Background()) // the session's end aborts them
	a.Observe(Stopped{Told: told})
	return nil
}

func (o *Options) setDefaults() {
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Goodbye == 0 {
		o.Goodbye = defaultGoodbye
	}
	if o.Drain == 0 {
		o.Drain = defaultDrain
	}
}

// verdict says why the client stopped by itself.
func (a *agent) verdict(run context.Context, err error) error {
	a.streams.wait(context.Background())
	if cause := context.Cause(run); cause != nil {
		return cause
	}
	if f := failureOf(err, &a.Options, a.atStart()); f != nil {
		return f
	}
	return err
}

func (a *agent) hello() tunnel.Hello {
	return tunnel.Hello{Role: tunnel.RoleAgent, Token: a.Token(), ClientVersion: version.String(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, InstanceID: a.InstanceID}
}

// down is called when a session was lost or the server drains it, and after each attempt that came to nothing.
func (a *agent) down(err error, retryIn time.Duration) {
	if f := failureOf(err, &a.Options, a.atStart()); f != nil {
		a.giveUp(f)
		return
	}
	cause := causeOf(err, a.Server)
	a.mu.Lock()
	news, was := cause != a.lastCause, a.everOnline
	a.lastCause = cause
	a.mu.Unlock()
	var refused *tunnel.Error
	switch {
	case !news:
	case errors.As(err, &refused) && refused.Code == tunnel.CodeDraining:
		a.Observe(Draining{Server: a.Server})
	default:
		a.Observe(Retrying{Server: a.Server, Cause: cause, In: retryIn, WasOnline: was})
	}
}

func (a *agent) atStart() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.everOnline
}

func (a *agent) requestLine(l tunnel.RequestLine) {
	a.Observe(Request{Method: l.Method, Path: l.Path, Status: l.Status, Duration: l.Duration})
}

// goodbye gives the endpoint back, so that it is deleted and not only offline, and lets live connections finish. It returns false when the
// server holds on to the endpoint, until its grace period ends.
func (a *agent) goodbye() (told bool) {
	ctx, cancel := context.WithTimeout(context.Background(), a.Goodbye)
	defer cancel()
	a.mu.Lock()
	b := a.latest
	a.mu.Unlock()
	if b == nil {
		return true
	}
	if !b.wait(ctx) {
		return ctx.Err() == nil && a.atStart()
	}
	// First nothing new, so that what the edge has opened is here when the endpoint goes: the others of a pool get the rest.
	if err := b.session.Drain(a.Drain); err != nil {
		a.Logger.Debug("saying goodbye", "error", err)
	}
	if err := b.session.Unbind(ctx, b.bound.EndpointID); err != nil {
		a.Logger.Debug("saying goodbye", "error", err)
		return false
	}
	if n := a.streams.live(); n > 0 {
		a.Observe(Stopping{Connections: n, Within: a.Drain})
		drain, cancel := context.WithTimeout(context.Background(), a.Drain)
		defer cancel()
		a.streams.wait(drain)
	}
	return true
}
