// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Defaults of Options.
const (
	defaultGoodbye = 2 * time.Second
	defaultDrain   = 3 * time.Second
	defaultRebind  = 2 * time.Second
)

// Options are what an agent needs. Fields without a comment about a default are required.
type Options struct {
	Server     string        // https://host:port, for messages
	Address    string        // host:port of the server
	TLS        *tls.Config   // from internal/trust
	Token      func() string // the authtoken; called for every session
	InstanceID string        // this installation's name; may be empty
	Endpoints  []Endpoint    // at least one

	Observe func(Event) // must not block; called from many goroutines; nil = nobody looks
	// called when a goroutine of the agent panics, before the process crashes: to give the terminal
	// back; nil = nothing
	OnPanic func()
	Logger  *slog.Logger

	Dial          DialFunc      // upstreams; nil = a net.Dialer
	UpstreamTLS   *tls.Config   // roots for https upstreams; nil = the system's
	DialServer    DialFunc      // the server; nil = a net.Dialer, without a proxy
	MaxBackoff    time.Duration // between attempts to reach the server; 0 = 10 s
	UnbindTimeout time.Duration // how long to wait for the server's answer to the goodbye; 0 = 2 s
	DrainTimeout  time.Duration // how long live connections may go on after the goodbye; 0 = 3 s
	// the first pause before one of several endpoints that was refused is asked for again, doubled up
	// to a minute; 0 = 2 s
	RebindDelay  time.Duration
	PingInterval time.Duration // how often the way to the server is measured; 0 = never
}

// agent is one run.
type agent struct {
	Options
	named     []EndpointInfo          // as Options.Endpoints
	giveUp    context.CancelCauseFunc // ends the client's run with a *Failure
	streams   streamCount
	leaving   chan struct{}  // closed by the goodbye: nothing is bound any more
	rebinding sync.WaitGroup // and what else runs beside a session
	looking   sync.WaitGroup

	mu         sync.Mutex
	held       map[*tunnel.Session]*held
	latest     *held
	ups        int             // sessions that came up
	states     []endpointState // as Options.Endpoints
	indexes    map[string]int  // by id, of everything that was ever bound
	everOnline bool            // any of the endpoints
	lastCause  string          // of the last Retrying; "" after Online
}

// endpointState is what becomes of one endpoint over all sessions.
type endpointState struct {
	resumeSecret string // of the latest bind; never leaves memory but for the next bind
	everOnline   bool
	refusal      string // the cause that was reported last; "" after Online
	upstreamDown bool
}

// Run keeps the endpoints bound and serves them until ctx is done: then it says goodbye, gives live
// connections a moment, and returns nil. It returns a *Failure when going on is useless.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a := &agent{
		Options: o, giveUp: cancel, leaving: make(chan struct{}),
		held: map[*tunnel.Session]*held{}, states: make([]endpointState, len(o.Endpoints)), indexes: map[string]int{},
	}
	for i := range o.Endpoints {
		a.named = append(a.named, o.Endpoints[i].info(i))
	}
	a.Observe(Starting{Version: version.String(), Server: o.Server, Endpoints: slices.Clone(a.named)})

	ended := make(chan error, 1)
	go func() { ended <- a.connect(run) }()
	defer func() { cancel(nil); a.looking.Wait() }()
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
	a.Observe(Stopped{ServerTold: told})
	return nil
}

func (o *Options) setDefaults() {
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.OnPanic == nil {
		o.OnPanic = func() {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.UnbindTimeout == 0 {
		o.UnbindTimeout = defaultGoodbye
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = defaultDrain
	}
	if o.RebindDelay == 0 {
		o.RebindDelay = defaultRebind
	}
}

// what names all the endpoints for a message.
func (a *agent) what() string {
	if len(a.Endpoints) == 1 {
		return a.named[0].DisplayName()
	}
	return fmt.Sprintf("any of these %d endpoints", len(a.Endpoints))
}

// connect keeps a session until run is done or going on is useless. The service ends a whole
// session when the authtoken may no longer serve one of its endpoints: then the others are bound
// again, and what is refused is said.
func (a *agent) connect(run context.Context) error {
	for {
		before := a.sessions()
		client := tunnel.NewClient(tunnel.ClientConfig{
			Address: a.Address, TLS: a.TLS, DialContext: a.DialServer, Hello: a.hello, MaxBackoff: a.MaxBackoff,
			OnUp: a.up, OnDown: a.down, OnStream: a.serve, OnRequestLine: a.requestLine, Logger: a.Logger,
		})
		err := client.Run(run)
		a.rebinding.Wait()
		var refused *tunnel.Error
		if run.Err() != nil || len(a.Endpoints) < 2 || a.sessions() == before || !errors.As(err, &refused) ||
			refused.Code != tunnel.CodeForbidden {
			return err
		}
		a.Observe(Retrying{Server: a.Server, Cause: causeOf(err, a.Server), WasOnline: true})
	}
}

// verdict says why the client stopped by itself.
func (a *agent) verdict(run context.Context, err error) error {
	a.streams.wait(context.Background())
	if cause := context.Cause(run); cause != nil {
		return cause
	}
	if f := failureOf(err, a.Server, a.what(), a.atStart()); f != nil {
		return f
	}
	return err
}

// crashing is deferred by what runs in goroutines of others.
func (a *agent) crashing() {
	if why := recover(); why != nil {
		a.OnPanic()
		panic(why)
	}
}

func (a *agent) hello() tunnel.Hello {
	return tunnel.Hello{Role: tunnel.RoleAgent, Token: a.Token(), ClientVersion: version.String(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, InstanceID: a.InstanceID}
}

// down is called when a session was lost or the server drains it, and after each attempt that came
// to nothing.
func (a *agent) down(err error, retryIn time.Duration) {
	if f := failureOf(err, a.Server, a.what(), a.atStart()); f != nil {
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
		a.Observe(Retrying{Server: a.Server, Cause: cause, RetryIn: retryIn, WasOnline: was})
	}
}

func (a *agent) atStart() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.everOnline
}

func (a *agent) requestLine(l tunnel.RequestLine) {
	defer a.crashing()
	a.mu.Lock()
	index, ok := a.indexes[l.EndpointID]
	a.mu.Unlock()
	if ok {
		a.Observe(Request{EndpointInfo: a.named[index], Method: l.Method, Path: l.Path, Status: l.Status,
			Duration: l.Duration})
	}
}

// goodbye gives the endpoints back, so that they are deleted and not only offline, and lets live
// connections finish. It returns false when the server holds on to one, until its grace period
// ends.
func (a *agent) goodbye() (told bool) {
	ctx, cancel := context.WithTimeout(context.Background(), a.UnbindTimeout)
	defer cancel()
	close(a.leaving)
	a.mu.Lock()
	h := a.latest
	a.mu.Unlock()
	if h == nil {
		return true
	}
	ids, answered := h.all(ctx)
	if !answered || len(ids) == 0 {
		return ctx.Err() == nil && a.atStart()
	}
	// First nothing new, so that what the edge has opened is here when the endpoint goes: the others
	// of a pool get the rest.
	if err := h.session.Drain(a.DrainTimeout); err != nil {
		a.Logger.Debug("saying goodbye", "error", err)
	}
	if err := unbindAll(ctx, h.session, ids); err != nil {
		a.Logger.Debug("saying goodbye", "error", err)
		return false
	}
	if n := a.streams.live(); n > 0 {
		a.Observe(Stopping{Connections: n, Timeout: a.DrainTimeout})
		drain, cancel := context.WithTimeout(context.Background(), a.DrainTimeout)
		defer cancel()
		a.streams.wait(drain)
	}
	return true
}

// unbindAll gives everything back at the same time: the goodbye has little.
func unbindAll(ctx context.Context, s *tunnel.Session, ids []string) error {
	errs := make([]error, len(ids))
	var asking sync.WaitGroup
	for i, id := range ids {
		asking.Go(func() { errs[i] = s.Unbind(ctx, id) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

// measure reports how long the way to the server and back takes, until the session ends.
func (a *agent) measure(ctx context.Context, s *tunnel.Session) {
	tick := time.NewTicker(a.PingInterval)
	defer tick.Stop()
	for {
		if took, err := s.Ping(); err == nil {
			a.Observe(Latency{RoundTrip: took})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sessions counts the sessions that came up.
func (a *agent) sessions() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ups
}
