// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Agent keeps endpoints bound and serves them. It is safe for concurrent use; Run is called once.
type Agent struct {
	opt          Options
	running      context.Context         // running ends with Run.
	giveUp       context.CancelCauseFunc // ends the client's run with a *Failure
	streams      streamSet               // the streams of all endpoints
	shuttingDown chan struct{}           // closed by shutDown, with mu held: nothing is bound any more
	// background has the goroutines of sessions that run does not wait for: binds, drains of
	// removed endpoints, measurements, reports.
	background sync.WaitGroup
	probes     sync.WaitGroup

	mu             sync.Mutex
	bindsBySession map[*tunnel.Session]*sessionBinds
	current        *sessionBinds // the latest session's binds
	sessionCount   int           // sessions that came up
	endpoints      map[identity]*endpoint
	order          []*endpoint          // those of the last Set, in its order
	byID           map[string]*endpoint // by endpoint id: those that are served
	everOnline     bool                 // any of the endpoints
	lastCause      string               // the last Retrying's cause; "" after Online
}

// New returns an Agent; Run starts it.
func New(o Options) *Agent {
	o.setDefaults()
	a := &Agent{opt: o, shuttingDown: make(chan struct{}), bindsBySession: make(map[*tunnel.Session]*sessionBinds),
		byID: make(map[string]*endpoint)}
	a.Set(o.Endpoints)
	return a
}

// Run is New and Agent.Run.
func Run(ctx context.Context, o Options) error { return New(o).Run(ctx) }

// Run keeps the endpoints bound and serves them until ctx is done. Then it unbinds them, unless
// Options.LeaveBound says otherwise, lets open connections finish within Options.DrainTimeout, and
// returns nil. It returns a *Failure when retrying is useless, but not with Options.KeepRunning.
func (a *Agent) Run(ctx context.Context) error {
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a.running, a.giveUp = run, cancel
	a.opt.Observer.Observe(Starting{Version: version.String(), Server: a.opt.Server, Endpoints: a.infos()})
	if a.opt.InspectURL != "" {
		a.opt.Observer.Observe(Inspecting{URL: a.opt.InspectURL})
	}
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
		a.opt.Logger.Debug("ending the last session", "error", err)
	}
	a.streams.wait(context.Background()) // the session's end aborts them
	a.opt.Observer.Observe(Stopped{ServerTold: told})
	return nil
}

// endpointsName names all the endpoints for a message.
func (a *Agent) endpointsName() string {
	infos := a.infos()
	if len(infos) == 1 {
		return infos[0].DisplayName()
	}
	return fmt.Sprintf("any of these %d endpoints", len(infos))
}

// connect keeps a session until run is done or retrying is useless. The service ends a session when
// the authtoken no longer admits one of its endpoints; the next session binds the others and
// reports the refusal.
func (a *Agent) connect(run context.Context) error {
	for failures := 0; ; failures++ {
		before := a.sessionsSoFar()
		client := tunnel.NewClient(tunnel.ClientConfig{
			Address: a.opt.Address, TLS: a.opt.TLS, DialContext: a.opt.DialServer, Hello: a.hello,
			MaxBackoff: a.opt.MaxBackoff, OnUp: a.onSessionUp, OnDown: a.onSessionDown, OnStream: a.serve,
			OnRequestLine: a.requestLine, MaxLegs: maxLegs, OnLegs: a.onLegs, Logger: a.opt.Logger,
			RenewToken: a.opt.RenewToken,
		})
		err := client.Run(run)
		a.background.Wait()
		wasUp := a.sessionsSoFar() > before
		if wasUp {
			failures = 0
		}
		var wait time.Duration
		switch losesOne := wasUp && a.isOneOfSeveral() && codeOf(err) == tunnel.CodeForbidden; {
		case run.Err() != nil, !losesOne && !a.opt.KeepRunning:
			return err
		case !losesOne:
			wait = a.pause(failures, maxRebind)
		}
		a.reportDown(err, wait)
		if !timer.Sleep(run, wait) {
			return nil
		}
	}
}

// finalError returns why the client stopped by itself.
func (a *Agent) finalError(run context.Context, err error) error {
	a.streams.wait(context.Background())
	if cause := context.Cause(run); cause != nil {
		return cause
	}
	if f := a.failureOf(err, a.endpointsName(), a.neverOnline()); f != nil {
		return f
	}
	return err
}

func (a *Agent) hello() tunnel.Hello {
	return tunnel.Hello{Role: tunnel.RoleAgent, Token: a.opt.Token(), ClientVersion: version.String(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, InstanceID: a.opt.InstanceID, ClusterUID: a.opt.ClusterUID}
}

// onSessionDown is called when a session is lost or the server drains it, and after each failed
// attempt.
func (a *Agent) onSessionDown(err error, retryIn time.Duration) {
	if f := a.failureOf(err, a.endpointsName(), a.neverOnline()); f != nil && !a.opt.KeepRunning {
		a.giveUp(f)
		return
	}
	a.reportDown(err, retryIn)
}

// reportDown reports why there is no session, once for each cause.
func (a *Agent) reportDown(err error, retryIn time.Duration) {
	cause, code := causeOf(err, a.opt.Server), codeOf(err)
	a.mu.Lock()
	news, was := cause != a.lastCause, a.everOnline
	a.lastCause = cause
	a.mu.Unlock()
	switch {
	case !news:
	case code == tunnel.CodeDraining:
		a.opt.Observer.Observe(Draining{Server: a.opt.Server})
	default:
		a.opt.Observer.Observe(Retrying{Server: a.opt.Server, Cause: cause, Code: code, Untrusted: trust.ProblemOf(err),
			RetryIn: retryIn, WasOnline: was})
	}
}

// codeOf returns the code of a refusal, "" for other errors.
func codeOf(err error) tunnel.Code {
	var refused *tunnel.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

func (a *Agent) neverOnline() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.everOnline
}

func (a *Agent) requestLine(l tunnel.RequestLine) {
	defer a.opt.reportPanic()
	a.mu.Lock()
	e := a.byID[l.EndpointID]
	if e == nil {
		a.mu.Unlock()
		return
	}
	info := e.bound.info
	a.mu.Unlock()
	a.opt.Observer.Observe(Request{EndpointInfo: info, Method: l.Method, Path: l.Path, Status: l.Status,
		Duration: l.Duration})
}

// measureLatency reports the round-trip time every PingInterval until ctx is done.
func (a *Agent) measureLatency(ctx context.Context, s *tunnel.Session) {
	for next := true; next; next = timer.Sleep(ctx, a.opt.PingInterval) {
		if took, err := s.Ping(); err == nil {
			a.opt.Observer.Observe(Latency{RoundTrip: took})
		}
	}
}

// sessionsSoFar returns the number of sessions that came up.
func (a *Agent) sessionsSoFar() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessionCount
}
