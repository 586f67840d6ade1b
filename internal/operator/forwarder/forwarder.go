// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/operator/sealedpaths"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// forwarder is a running forwarder: its parts and their shared state.
type forwarder struct {
	options   Options
	timing    timing
	log       *slog.Logger
	metrics   *metrics
	edge      *edgeClient
	listeners *listeners
	relay     *forward.Relay
	access    *accessControl
	sealing   *sealing

	connCtx  context.Context // connCtx ends the connections after the drain.
	cutConns context.CancelFunc

	operatorUID     atomic.Pointer[string] // UID of the KubernetesOperator; nil: not known yet
	othersConnected atomic.Bool            // othersConnected reports that the other forwarders have a session.
	statusChanged   broadcaster            // statusChanged is woken when the status changes.
	watches         atomic.Int32

	stopping  chan struct{} // stopping is closed when the shutdown begins.
	uninstall uninstall
	synced    chan struct{} // synced is closed once the BoundEndpoints are listed and their listeners opened.
	ready     atomic.Bool
	draining  atomic.Bool
}

// Run listens and relays until ctx is done. It then continues to accept until no EndpointSlice
// lists the pod, waits up to DrainTimeout for its connections, and returns nil. When its namespace
// is being deleted, it stops immediately. An error means that it could not start, or that one of
// its own listen addresses failed.
func Run(ctx context.Context, o Options) error {
	f, err := newForwarder(o, defaultTiming())
	if err != nil {
		return err
	}
	return f.run(ctx)
}

func newForwarder(o Options, t timing) (*forwarder, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("forwarder: %w", err)
	}
	f := &forwarder{options: o, timing: t, log: o.Logger, metrics: newMetrics(), synced: make(chan struct{}),
		stopping:  make(chan struct{}),
		uninstall: uninstall{source: o.Source, timing: t, log: o.Logger, known: make(chan struct{})}}
	f.listeners = &listeners{listen: o.listen, relayConn: f.relayConn, stats: f.metrics, log: o.Logger, timing: t,
		changed: &f.statusChanged, byPort: map[int]*listener{}}
	f.access = newAccessControl(&f.options, t, &f.statusChanged)
	f.sealing = newSealing(o.RuleOptions, o.Logger, &f.statusChanged)
	f.edge = newEdgeClient(&o, t.edgeRetry, &f.statusChanged, f.listeners.recordRequestLine)
	f.connCtx, f.cutConns = context.WithCancel(context.Background())
	f.relay = &forward.Relay{Sessions: f.edge, Timing: t.Timing, Context: f.connCtx}
	f.registerGauges()
	return f, nil
}

// registerGauges registers the metrics that are computed on every scrape.
func (f *forwarder) registerGauges() {
	const up = "1 while there is a session with the edge, and it responds."
	f.metrics.gauge("fairlead_forwarder_session_up", up, func() float64 {
		if f.edge.status().Up {
			return 1
		}
		return 0
	})
	const legs = "Replicas of the service that the session leads to and that take connections; 1 with a single server."
	f.metrics.gauge("fairlead_forwarder_legs", legs, func() float64 {
		serving, _ := f.edge.legCounts()
		return float64(serving)
	})
	const wanted = "Replicas of the service that the session should lead to; 1 with a single server."
	f.metrics.gauge("fairlead_forwarder_legs_wanted", wanted, func() float64 {
		_, wanted := f.edge.legCounts()
		return float64(wanted)
	})
	f.metrics.gauge("fairlead_forwarder_listeners_failed", "Ports that cannot be listened on.", func() float64 {
		failed := 0
		for _, l := range f.listeners.status() {
			if !l.Listening {
				failed++
			}
		}
		return float64(failed)
	})
	const ends = "When the certificate by which it proves itself to agents ends, in seconds since 1970; 0 without one."
	f.metrics.gauge("fairlead_forwarder_caller_certificate_expiry_timestamp_seconds", ends, f.sealing.callerEnd)
	f.metrics.registry.MustRegister(sealedpaths.Metrics("fairlead_forwarder", f.edge.sealedPaths)...)
}

func (f *forwarder) run(ctx context.Context) error {
	defer f.cutConns()
	health, metrics, err := f.servers(ctx)
	if err != nil {
		return err
	}
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, parts := errgroup.WithContext(parts)
	keeping, dropSpares := context.WithCancel(parts)
	defer context.AfterFunc(ctx, dropSpares)()
	group.Go(func() error {
		f.relay.KeepSpares(keeping)
		return nil
	})
	group.Go(func() error { return health.run(parts) })
	group.Go(func() error { return metrics.run(parts) })
	group.Go(func() error { return f.options.Source.Watch(parts, f.update) })
	group.Go(func() error { return f.runEdge(parts) })
	group.Go(func() error { return f.edge.trackSessions(parts) })
	group.Go(func() error { return f.access.enforce(parts) })
	group.Go(func() error { return f.sealing.run(parts, f.relay) })
	group.Go(func() error { return f.becomeReady(parts) })
	group.Go(func() error { return f.uninstall.watch(parts, f.stopping) })
	group.Go(func() error {
		var drain time.Duration
		select {
		case <-ctx.Done():
			drain = f.awaitDeregistration(parts)
		case <-parts.Done(): // a part of this process failed
		}
		f.drainConnections(drain)
		stop()
		return nil
	})
	return group.Wait()
}

// runEdge maintains the session with the edge once the cluster's objects, and so the operator's id,
// were read.
func (f *forwarder) runEdge(ctx context.Context) error {
	select {
	case <-f.synced:
		return f.edge.run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// update applies the cluster's objects.
func (f *forwarder) update(o Objects) {
	f.edge.setOperatorID(o.OperatorID)
	if o.OperatorUID != "" {
		f.operatorUID.Store(&o.OperatorUID)
	}
	f.othersConnected.Store(o.OthersConnected)
	f.access.setObjects(o)
	f.listeners.apply(assignPorts(o.BoundEndpoints))
	select {
	case <-f.synced:
	default:
		f.log.Info("BoundEndpoints listed", "listeners", len(f.listeners.status()))
		close(f.synced)
	}
}

// becomeReady decides when the forwarder becomes ready: with a session, or without after the
// timeout if that is no fault of its own, and in any case with the rules about callers of all that
// it serves. It stays ready: without the edge, an error response is better than a refused
// connection.
func (f *forwarder) becomeReady(ctx context.Context) error {
	select {
	case <-f.synced:
	case <-ctx.Done():
		return nil
	}
	if !f.awaitSession(ctx) {
		return nil
	}
	for logged := ""; ; {
		changed := f.statusChanged.next()
		missing := f.missingRules()
		if missing == "" {
			break
		}
		if missing != logged {
			logged = missing
			f.log.Warn("not ready: " + missing)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
	f.log.Info("ready")
	f.ready.Store(true)
	f.statusChanged.broadcast()
	return nil
}

// awaitSession waits for the first session with the edge, for readyTimeout and as long as mustConnect
// demands. It returns false when ctx is done.
func (f *forwarder) awaitSession(ctx context.Context) bool {
	logged, pause := "", f.timing.readyTimeout
	for {
		select {
		case <-f.edge.connectedOnce:
			return true
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
		why := f.mustConnect()
		if why == "" {
			f.log.Warn("there is no session with the edge; not waiting for it")
			return true
		}
		if why != logged {
			logged = why
			f.log.Warn("not ready without a session with the edge: " + why)
		}
		pause = f.timing.readyPoll
	}
}

// mustConnect returns why a forwarder that never had a session must not be ready: it would take calls
// over from those that serve them, with a credential or an address that is wrong. "": the service
// may be away, and then a forwarder that restarts is ready, to answer with 503.
func (f *forwarder) mustConnect() string {
	switch refusal := f.edge.refusal(); {
	case refusal != "":
		return "the service refuses this forwarder: " + refusal
	case f.othersConnected.Load():
		return "the other forwarders have one"
	}
	return ""
}
