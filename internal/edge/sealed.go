// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// resolveSealed returns the route of a sealed connection: to an agent that seals. It binds without a
// policy, but another member of its pool may have replaced the pool's: that one may deny the
// connection, and must not forward it.
func (rt *router) resolveSealed(ctx context.Context, ep *account.Endpoint, info *ClientInfo) (route, error) {
	if ep.Type == account.TypeCloud {
		return route{}, errNotSealed(ep)
	}
	latest, agent, err := rt.resolveEndpoint(ctx, ep, info)
	switch {
	case err == nil && agent == nil: // it has a policy, and no agent
		err = account.Errorf(account.CodeEndpointOffline, "the agent of %s is not connected", ep.URL)
	case err == nil:
		var verdict trafficpolicy.Verdict
		verdict, err = rt.evaluateConn(ctx, latest, info)
		if err == nil && verdict.Target != (trafficpolicy.Target{}) {
			err = account.Errorf(account.CodeNotSealed, "the policy of %s forwards a sealed connection", latest.URL)
		}
	}
	if err == nil {
		return route{router: rt, info: info, endpoint: latest, preselected: agent}, nil
	}
	if agent != nil {
		agent.Release()
	}
	return route{}, err
}

// reportDraining tells the agent of a sealed connection, which may be kept for further requests, that the
// forwarder or this server is about to stop.
func (p *pendingConn) reportDraining() {
	for goesOn := p.waitOpened() == nil; goesOn; goesOn = timer.Sleep(p.ctx, time.Second) {
		to := p.target.agent
		to.Report(tunnel.RequestLine{EndpointID: to.Endpoint().ID, Code: tunnel.LineDraining, Path: p.header.TraceID})
	}
}

const (
	// answerPause is how long, once or twice, nothing moves before the agent that is to answer is watched,
	// and unansweredSealed how long it may not respond then.
	answerPause      = 1500 * time.Millisecond
	unansweredSealed = time.Second
)

// answerWatch ends a sealed http connection whose agent does not respond although the caller has sent
// something. An agent whose upstream is slow responds.
type answerWatch struct {
	conn  *pendingConn
	cut   context.CancelCauseFunc
	waits atomic.Bool // waits is set by bytes of the caller's, until some of the agent's follow.
	timer *time.Timer // timer calls check; it runs after waits was set.

	mu    sync.Mutex
	sent  int64         // sent is what the caller had sent at the last check.
	watch *silenceWatch // watch is that of the agent; nil = there is none.
	ended bool
}

// watchSealedHTTP watches a sealed http connection until stop is called: reportDraining when it is due, and
// cut when the agent does not respond.
func (p *pendingConn) watchSealedHTTP(cut context.CancelCauseFunc) (stop func()) {
	w := &answerWatch{conn: p, cut: cut}
	w.timer = time.AfterFunc(answerPause, w.check)
	p.answers = w
	stops := []func() bool{w.timer.Stop, context.AfterFunc(p.edge.stopping, p.reportDraining)}
	if st, ok := p.client.(interface{ PeerDraining() context.Context }); ok {
		stops = append(stops, context.AfterFunc(st.PeerDraining(), p.reportDraining))
	}
	return func() {
		for _, end := range stops {
			end()
		}
		w.endWatch(true)
	}
}

// count takes note of bytes to and from the agent.
func (w *answerWatch) count(to, from int) {
	switch {
	case from > 0 && w.waits.CompareAndSwap(true, false):
		w.endWatch(false)
	case to > 0 && w.waits.CompareAndSwap(false, true):
		w.timer.Reset(answerPause)
	}
}

func (w *answerWatch) endWatch(forGood bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch != nil {
		w.watch.stop()
	}
	w.watch, w.ended = nil, forGood
}

// check watches the agent if nothing has moved since the last check.
func (w *answerWatch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.sent
	if record := w.conn.record.Load(); record != nil { // else it is a spare without a client
		w.sent, _ = record.Traffic.Totals()
	}
	switch st, ok := w.conn.loadConn().(watchable); {
	case w.ended || !w.waits.Load() || w.watch != nil:
	case w.sent != before || !ok || !w.conn.established.Load():
		w.timer.Reset(answerPause)
	default:
		w.watch = watchSilence(st, unansweredSealed, w.cut, tunnel.ErrUnresponsive)
	}
}
