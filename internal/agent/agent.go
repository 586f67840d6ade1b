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
	defaultUnbindTimeout = 2 * time.Second
	defaultDrainTimeout  = 3 * time.Second
	defaultRebindDelay   = 2 * time.Second
	defaultLegsDelay     = 500 * time.Millisecond
	maxLegs              = 3 // how many replicas of the service a session connects to
)

// Options are what an agent needs. Fields without a comment about a default are required.
type Options struct {
	Server     string        // https://host:port, for messages
	Address    string        // host:port of the server
	TLS        *tls.Config   // from internal/trust
	Token      func() string // the authtoken; called for every session
	InstanceID string        // this installation's name; may be empty
	Endpoints  []Endpoint    // at least one

	Observe func(Event) // must not block; called from many goroutines; nil = discard
	// OnPanic is called when a goroutine of the agent panics, before the process crashes, to
	// restore the terminal; nil = nothing.
	OnPanic func()
	Logger  *slog.Logger

	Dial          DialFunc      // upstreams; nil = a net.Dialer
	UpstreamTLS   *tls.Config   // roots for https upstreams; nil = the system's
	DialServer    DialFunc      // the server; nil = a net.Dialer, without a proxy
	MaxBackoff    time.Duration // between attempts to reach the server; 0 = 10 s
	UnbindTimeout time.Duration // for the server's answers at the shutdown; 0 = 2 s
	DrainTimeout  time.Duration // for open connections at the shutdown; 0 = 3 s
	// RebindDelay is the first pause before a refused one of several endpoints is bound again; it
	// doubles up to a minute. 0 = 2 s.
	RebindDelay  time.Duration
	PingInterval time.Duration // between measurements of the latency; 0 = none
	// LegsDelay is how long changes of the replicas that a session is connected to are collected
	// before they are reported together. 0 = 0.5 s.
	LegsDelay time.Duration
}

// agent is the state of one Run.
type agent struct {
	Options
	endpointInfos []EndpointInfo          // as Options.Endpoints
	giveUp        context.CancelCauseFunc // ends the client's run with a *Failure
	streams       streamCount
	shuttingDown  chan struct{}  // closed by shutDown: nothing is bound any more
	background    sync.WaitGroup // rebind, measureLatency and reportReplicas
	probes        sync.WaitGroup

	mu             sync.Mutex
	bindsBySession map[*tunnel.Session]*sessionBinds
	current        *sessionBinds
	sessionCount   int             // sessions that came up
	states         []endpointState // as Options.Endpoints
	indexes        map[string]int  // by endpoint id, of all sessions
	everOnline     bool            // any of the endpoints
	lastCause      string          // of the last Retrying; "" after Online
}

// endpointState is the state of one endpoint over all sessions.
type endpointState struct {
	resumeSecret string // of the latest bind; in memory only, sent with the next bind
	everOnline   bool
	refusal      string // the cause that was reported last; "" after Online
	upstreamDown bool
}

// Run keeps the endpoints bound and serves them until ctx is done. Then it unbinds them, lets open
// connections finish within Options.DrainTimeout, and returns nil. It returns a *Failure when
// retrying is useless.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a := &agent{
		Options: o, giveUp: cancel, shuttingDown: make(chan struct{}),
		bindsBySession: map[*tunnel.Session]*sessionBinds{}, states: make([]endpointState, len(o.Endpoints)),
		indexes: map[string]int{},
	}
	for i := range o.Endpoints {
		a.endpointInfos = append(a.endpointInfos, o.Endpoints[i].info(i))
	}
	a.Observe(Starting{Version: version.String(), Server: o.Server, Endpoints: slices.Clone(a.endpointInfos)})

	ended := make(chan error, 1)
	go func() { ended <- a.connect(run) }()
	defer func() { cancel(nil); a.probes.Wait() }()
	select {
	case err := <-ended:
		return a.finalError(run, err)
	case <-ctx.Done():
	}
	told := a.shutDown()
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
		o.UnbindTimeout = defaultUnbindTimeout
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = defaultDrainTimeout
	}
	if o.RebindDelay == 0 {
		o.RebindDelay = defaultRebindDelay
	}
	if o.LegsDelay == 0 {
		o.LegsDelay = defaultLegsDelay
	}
}

// endpointsName names all the endpoints for a message.
func (a *agent) endpointsName() string {
	if len(a.Endpoints) == 1 {
		return a.endpointInfos[0].DisplayName()
	}
	return fmt.Sprintf("any of these %d endpoints", len(a.Endpoints))
}

// connect keeps a session until run is done or retrying is useless. The service ends a session when
// the authtoken no longer admits one of its endpoints; the next session binds the others and
// reports the refusal.
func (a *agent) connect(run context.Context) error {
	for {
		before := a.sessionsSoFar()
		client := tunnel.NewClient(tunnel.ClientConfig{
			Address: a.Address, TLS: a.TLS, DialContext: a.DialServer, Hello: a.hello, MaxBackoff: a.MaxBackoff,
			OnUp: a.onSessionUp, OnDown: a.onSessionDown, OnStream: a.serve, OnRequestLine: a.requestLine,
			MaxLegs: maxLegs, OnLegs: a.onLegs, Logger: a.Logger,
		})
		err := client.Run(run)
		a.background.Wait()
		var refused *tunnel.Error
		if run.Err() != nil || len(a.Endpoints) < 2 || a.sessionsSoFar() == before || !errors.As(err, &refused) ||
			refused.Code != tunnel.CodeForbidden {
			return err
		}
		a.Observe(Retrying{Server: a.Server, Cause: causeOf(err, a.Server), WasOnline: true})
	}
}

// finalError returns why the client stopped by itself.
func (a *agent) finalError(run context.Context, err error) error {
	a.streams.wait(context.Background())
	if cause := context.Cause(run); cause != nil {
		return cause
	}
	if f := failureOf(err, a.Server, a.endpointsName(), a.neverOnline()); f != nil {
		return f
	}
	return err
}

// reportPanic calls OnPanic before a panic ends the process. Callbacks of other packages defer it.
func (a *agent) reportPanic() {
	if why := recover(); why != nil {
		a.OnPanic()
		panic(why)
	}
}

func (a *agent) hello() tunnel.Hello {
	return tunnel.Hello{Role: tunnel.RoleAgent, Token: a.Token(), ClientVersion: version.String(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, InstanceID: a.InstanceID}
}

// onSessionDown is called when a session is lost or the server drains it, and after each failed
// attempt.
func (a *agent) onSessionDown(err error, retryIn time.Duration) {
	if f := failureOf(err, a.Server, a.endpointsName(), a.neverOnline()); f != nil {
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

func (a *agent) neverOnline() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.everOnline
}

func (a *agent) requestLine(l tunnel.RequestLine) {
	defer a.reportPanic()
	a.mu.Lock()
	index, ok := a.indexes[l.EndpointID]
	a.mu.Unlock()
	if ok {
		a.Observe(Request{EndpointInfo: a.endpointInfos[index], Method: l.Method, Path: l.Path, Status: l.Status,
			Duration: l.Duration})
	}
}

// shutDown unbinds the endpoints, so that the service deletes them instead of keeping them offline,
// and lets open connections finish. It returns false when the server could not be told.
func (a *agent) shutDown() (told bool) {
	ctx, cancel := context.WithTimeout(context.Background(), a.UnbindTimeout)
	defer cancel()
	close(a.shuttingDown)
	a.mu.Lock()
	h := a.current
	a.mu.Unlock()
	if h == nil {
		return true
	}
	ids, answered := h.allIDs(ctx)
	if !answered || len(ids) == 0 {
		return ctx.Err() == nil && a.neverOnline()
	}
	// Refuse new streams first: all that the edge has opened are here before the endpoint is
	// deleted, and the other members of a pool get the rest.
	if err := h.session.Drain(a.DrainTimeout); err != nil {
		a.Logger.Debug("shutting down", "error", err)
	}
	if err := unbindAll(ctx, h.session, ids); err != nil {
		a.Logger.Debug("shutting down", "error", err)
		return false
	}
	if n := a.streams.count(); n > 0 {
		a.Observe(Stopping{Connections: n, Timeout: a.DrainTimeout})
		drain, cancel := context.WithTimeout(context.Background(), a.DrainTimeout)
		defer cancel()
		a.streams.wait(drain)
	}
	return true
}

// unbindAll unbinds concurrently, because the time is short.
func unbindAll(ctx context.Context, s *tunnel.Session, ids []string) error {
	errs := make([]error, len(ids))
	var asking sync.WaitGroup
	for i, id := range ids {
		asking.Go(func() { errs[i] = s.Unbind(ctx, id) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

// measureLatency reports the round-trip time every PingInterval until ctx is done.
func (a *agent) measureLatency(ctx context.Context, s *tunnel.Session) {
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

// sessionsSoFar returns the number of sessions that came up.
func (a *agent) sessionsSoFar() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessionCount
}
