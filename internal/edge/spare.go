// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// SpareKey names a spare: a sealed connection that a forwarder has opened before it has a client.
type SpareKey struct {
	Session *tunnel.Session
	ID      uint64 // 0 = none
}

// maxSpareAge bounds the time without a client; forwarders use younger ones.
const maxSpareAge = 75 * time.Second

// spare is a sealed connection that counts, and is recorded, from when it has a client.
type spare struct {
	*pendingConn
	decided chan struct{} // decided is closed once it has its client, or is known to get none.
}

// discard makes a spare get no client, unless one has found it.
func (s *spare) discard(key SpareKey) (done bool) {
	if done = s.edge.spares.CompareAndDelete(key, s); done {
		close(s.decided)
	}
	return done
}

// serveSpare relays a spare until it has ended. An endpoint with a policy, which may deny clients, has
// none.
func (e *Edge) serveSpare(ctx context.Context, c Client, ep *account.Endpoint, info *ClientInfo) {
	if ep.TrafficPolicy != "" {
		e.refuse(c, tunnel.RefusedNotSealed)
		return
	}
	route, err := e.router.resolveSealed(ctx, ep, info)
	if err != nil {
		e.refuse(c, trafficerror.Of(err).Refusal)
		return
	}
	h := tunnel.OpenHeader{Scheme: ep.Scheme, Sealed: true, SpareID: info.Spare.ID, TraceID: rand.Text()}
	s := &spare{e.newPendingConn(ctx, c, &route, h, nil), make(chan struct{})}
	defer s.release()
	if s.waitOpened() != nil {
		return
	}
	if _, taken := e.spares.LoadOrStore(info.Spare, s); taken {
		_ = c.Reset(tunnel.Aborted)
		_ = s.Abort()
		return
	}
	ended := make(chan struct{})
	go s.awaitClient(info, ended)
	_, failed, _ := s.join(ctx)
	close(ended)
	s.discard(info.Spare)
	<-s.decided
	if record := s.record.Load(); record != nil {
		e.finishConnRecord(record, "", failed)
		e.connEnded()
	}
}

// awaitClient ends a spare that gets no client before it is too old, its agent changes, or one of those
// that it passes is about to stop.
func (s *spare) awaitClient(info *ClientInfo, ended <-chan struct{}) {
	limit := time.NewTimer(maxSpareAge)
	defer limit.Stop()
	select {
	case <-s.decided:
	case <-s.target.agent.Context().Done():
	case <-s.loadConn().(*agentStream).PeerDraining().Done():
	case <-info.Draining:
	case <-s.edge.stopping.Done():
	case <-limit.C:
	case <-ended:
		return
	}
	if s.discard(info.Spare) {
		_ = s.client.Reset(tunnel.Aborted)
		_ = s.Abort()
	}
}

// useSpare makes a spare the connection of the client. The stream that describes the client carries
// nothing else. Until the forwarder ends it, as it does with the agent's answer or its patience, an agent
// that does not respond ends the spare, so that another one may serve.
func (e *Edge) useSpare(c Client, ep *account.Endpoint, info *ClientInfo) {
	found, ok := e.spares.LoadAndDelete(info.Spare)
	if !ok {
		e.refuse(c, tunnel.RefusedOffline)
		return
	}
	s := found.(*spare)
	agent := s.target.agent
	if now := agent.Endpoint(); now.URL != ep.URL || now.TrafficPolicy != "" || agent.Context().Err() != nil {
		close(s.decided)
		_ = s.Abort()
		e.refuse(c, tunnel.RefusedOffline)
		return
	}
	e.connStarted()
	s.record.Store(e.startConnRecord(ep, info))
	close(s.decided)
	defer s.loadConn().(*agentStream).OnUnresponsive(func() { go func() { _ = s.Abort() }() })()
	if c.Accept() == nil {
		_ = c.CloseWrite() // sends the answer at once
		_, _ = io.Copy(io.Discard, c)
	}
}
