// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/legs"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Agent keeps endpoints bound and serves them. It is safe for concurrent use; Run is called once.
type Agent struct {
	opt       *Options
	giveUp    context.CancelCauseFunc // ends the client's run with a *Failure
	endpoints *endpointSet
	outages   *Outages
	upstreams *upstreamWatch
	streams   *streamServer
	binder    *binder
	pairs     *tunnel.PairBudget
	presented atomic.Pointer[string] // presented is the authtoken of the last hello.
	// background has the goroutines of sessions that run does not wait for: binds, drains of
	// removed endpoints, measurements, reports.
	background sync.WaitGroup
}

// New returns an Agent; Run starts it.
func New(o Options) *Agent {
	o.setDefaults()
	set := newEndpointSet(&o)
	a := &Agent{opt: &o, endpoints: set, pairs: tunnel.NewPairBudget(), outages: NewOutages(&o, "serve"),
		upstreams: &upstreamWatch{opt: &o, endpoints: set}}
	a.streams = &streamServer{opt: &o, endpoints: set, upstreams: a.upstreams, inspection: inspection{&o},
		unsealed: newUnsealed()}
	a.binder = &binder{opt: &o, endpoints: set, outages: a.outages, upstreams: a.upstreams, inspection: inspection{&o},
		background: &a.background}
	a.Set(o.Endpoints)
	return a
}

// Run is New and Agent.Run.
func Run(ctx context.Context, o Options) error { return New(o).Run(ctx) }

// Set makes the agent serve these endpoints and no others, from now on or when Run runs. It does
// not wait. Endpoints are told apart by key, URL and binding, or labels; of several with the same,
// the last counts. A new one is bound. One whose policy, metadata or upstream differ is bound again
// on the same session, and served as before until the server has accepted that. One that is missing
// is unbound, then its open connections get Options.DrainTimeout to end. Set takes time for each
// endpoint: collect changes that come together.
func (a *Agent) Set(endpoints []Endpoint) { a.endpoints.set(endpoints) }

// Run keeps the endpoints bound and serves them until ctx is done. Then it unbinds them, unless
// Options.LeaveBound says otherwise, lets open connections finish within Options.DrainTimeout, and
// returns nil. It returns a *Failure when retrying is useless, but not with Options.KeepRunning.
func (a *Agent) Run(ctx context.Context) error {
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a.upstreams.running, a.giveUp = run, cancel
	a.opt.Observer.Observe(Starting{Version: version.String(), Server: a.opt.Server, Endpoints: a.endpoints.infos()})
	if a.opt.InspectURL != "" {
		a.opt.Observer.Observe(Inspecting{URL: a.opt.InspectURL})
	}
	ended := make(chan error, 1)
	go func() { ended <- a.connect(run) }()
	var watching sync.WaitGroup
	watching.Go(func() { a.endpoints.watchSeals(run) })
	defer func() { cancel(nil); a.upstreams.probes.Wait(); watching.Wait() }()
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
	a.streams.open.wait(context.Background()) // the session's end aborts them
	a.opt.Observer.Observe(Stopped{ServerTold: told})
	return nil
}

// SealedPaths returns what carries the sealed streams.
func (a *Agent) SealedPaths() tunnel.SealedPaths {
	if latest := a.endpoints.latestSession(); latest != nil {
		return a.pairs.SealedPaths(latest.session)
	}
	return a.pairs.SealedPaths(nil)
}

// connect keeps a session until run is done or retrying is useless. The service ends a session when
// the authtoken no longer admits one of its endpoints; the next session binds the others and
// reports the refusal.
func (a *Agent) connect(run context.Context) error {
	for failures := 0; ; failures++ {
		before := a.endpoints.latestSession()
		client := tunnel.NewClient(tunnel.ClientConfig{
			Address: a.opt.Address, TLS: a.opt.TLS, DialContext: a.opt.DialServer, Hello: a.hello,
			MaxBackoff: a.opt.MaxBackoff, OnUp: a.onSessionUp, OnDown: a.onSessionDown, OnStream: a.streams.serve,
			OnRequestLine: a.requestLine, MaxLegs: maxLegs, OnLegs: a.onLegs, Logger: a.opt.Logger,
			RenewToken: a.opt.RenewToken, Authorities: a.opt.Authorities, PairBudget: a.pairs,
		})
		err := client.Run(run)
		a.background.Wait()
		wasUp := a.endpoints.latestSession() != before
		if wasUp {
			failures = 0
		}
		several := a.opt.KeepRunning || len(a.endpoints.infos()) > 1
		var wait time.Duration
		switch losesOne := wasUp && several && codeOf(err) == tunnel.CodeForbidden; {
		case run.Err() == nil && a.hasNewerToken(err):
			continue
		case run.Err() != nil, !losesOne && !a.opt.KeepRunning:
			return err
		case !losesOne:
			wait = a.opt.pause(failures, maxRebind)
		}
		a.outages.Report(err, wait)
		if !timer.Sleep(run, wait) {
			return nil
		}
	}
}

// hasNewerToken reports whether the server refused an authtoken in whose place there is another one by
// now. A new one is tried once.
func (a *Agent) hasNewerToken(err error) bool {
	code := codeOf(err)
	return (code == tunnel.CodeTokenRevoked || code == tunnel.CodeBadToken) && a.opt.Token() != *a.presented.Load()
}

// finalError returns why the client stopped by itself.
func (a *Agent) finalError(run context.Context, err error) error {
	a.streams.open.wait(context.Background())
	if cause := context.Cause(run); cause != nil {
		return cause
	}
	if f := a.outages.FailureOf(err, a.endpointsName()); f != nil {
		return f
	}
	return err
}

// endpointsName names all the endpoints for a message.
func (a *Agent) endpointsName() string {
	infos := a.endpoints.infos()
	if len(infos) == 1 {
		return infos[0].DisplayName()
	}
	return fmt.Sprintf("any of these %d endpoints", len(infos))
}

func (a *Agent) hello() tunnel.Hello {
	token := a.opt.Token()
	a.presented.Store(&token)
	return tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClientVersion: version.String(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, InstanceID: a.opt.InstanceID, ClusterUID: a.opt.ClusterUID}
}

// onSessionUp begins to bind the endpoints on a new session. With Options.KeepRunning it does not
// wait. Otherwise its error makes the client close the session and retry, unless it ends the agent.
// A refusal of one of several endpoints does not end the others: the agent retries it while it
// serves them.
func (a *Agent) onSessionUp(ctx context.Context, s *tunnel.Session) error {
	defer a.opt.reportPanic()
	h := newSessionBinds(s)
	endpoints := a.endpoints.trackSession(h)
	if a.opt.KeepRunning {
		a.outages.End(false)
	}
	w := s.Welcome()
	a.opt.Observer.Observe(Connected{SessionID: w.SessionID, Server: a.opt.Server, ServerVersion: w.ServerVersion,
		AccountID: w.AccountID, Region: w.Region, Carrier: s.Carrier()})
	a.background.Go(func() { a.reportReplicas(ctx, h) })
	if a.opt.PingInterval > 0 {
		a.background.Go(func() { a.measureLatency(ctx, s) })
	}
	a.background.Go(func() { a.binder.run(ctx, h) })
	if a.opt.KeepRunning {
		return nil
	}
	var results map[*endpoint]error
	if !a.endpoints.waitFor(ctx, h, func() bool {
		if len(h.results) < len(endpoints) {
			return false
		}
		results, h.results = h.results, nil // later ones are not recorded
		return true
	}) {
		return s.Err()
	}
	f, err := a.binder.firstProblem(results, endpoints)
	if f != nil {
		a.giveUp(f)
		return f
	}
	return err
}

// onSessionDown is called when a session is lost or the server drains it, and after each failed
// attempt.
func (a *Agent) onSessionDown(err error, retryIn time.Duration) {
	if f := a.outages.FailureOf(err, a.endpointsName()); f != nil && !a.opt.KeepRunning {
		a.giveUp(f)
		return
	}
	a.outages.Report(err, retryIn)
}

func (a *Agent) requestLine(l tunnel.RequestLine) {
	defer a.opt.reportPanic()
	if l.Code == tunnel.LineDraining {
		if drain, ok := a.streams.drains.Load(l.Path); ok {
			drain.(context.CancelFunc)()
		}
		return
	}
	if e, info := a.endpoints.findByID(l.EndpointID); e != nil {
		a.streams.reportRequest(e, info, l)
	}
}

// measureLatency reports the round-trip time every PingInterval until ctx is done.
func (a *Agent) measureLatency(ctx context.Context, s *tunnel.Session) {
	for next := true; next; next = timer.Sleep(ctx, a.opt.PingInterval) {
		if took, err := s.Ping(); err == nil {
			a.opt.Observer.Observe(Latency{RoundTrip: took, Carrier: s.Carrier()})
		}
	}
}

// maxLegs is how many replicas of the service a session connects to.
const maxLegs = 3

// legsDelay is how long changes of the replicas that a session is connected to are collected before
// they are reported together.
const legsDelay = 500 * time.Millisecond

// sessionLegs follows the replicas that a session is connected to.
type sessionLegs struct {
	changed chan struct{} // gets a token when they may have changed

	mu    sync.Mutex
	known legs.Tracker
}

// onLegs is called when the replicas that a session is connected to may have changed.
func (a *Agent) onLegs(s *tunnel.Session) {
	h := a.endpoints.bindsOf(s)
	if h == nil { // reportReplicas begins with what there is
		return
	}
	h.legs.mu.Lock()
	h.legs.known.Note(s.Legs())
	h.legs.mu.Unlock()
	select {
	case h.legs.changed <- struct{}{}:
	default:
	}
}

// reportReplicas reports the replicas that the session is connected to until ctx is done or the
// service drains the session. It collects the changes of legsDelay, because a session finds its
// replicas one after the other.
func (a *Agent) reportReplicas(ctx context.Context, h *sessionBinds) {
	for timer.Sleep(ctx, legsDelay) {
		h.legs.mu.Lock()
		c, changed := h.legs.known.Update(h.session.Legs(), h.session.WantedLegs(), time.Now())
		h.legs.mu.Unlock()
		if changed && !a.endpoints.isStopping() {
			a.opt.Observer.Observe(Replicas{Connected: c.Serving, Wanted: c.Wanted, Found: c.Found,
				Draining: c.Draining, Lost: c.Lost})
		}
		select {
		case <-h.legs.changed:
		case <-h.session.PeerDraining():
			return
		case <-ctx.Done():
			return
		}
	}
}
