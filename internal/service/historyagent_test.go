// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const agentsHost = "agents.example.com"

// agentRow is a register that agents have, one after the other. Each takes it over from the one
// before, which stays connected and would still answer.
type agentRow struct {
	register

	random *rand.Rand
	mu     sync.Mutex // held while an agent binds
	newest int64      // the agent that may bind
	secret string     // with which the next one takes over
}

// rowAgent is one of the agents of a row.
type rowAgent struct {
	*tunnel.Client
	n      int64
	bound  chan bindTime // gets the first answer to a bind
	unsure bool          // a bind had no answer, and may have an effect later; row.mu guards it
	stop   func()
}

// bindTime is when a bind began and was answered.
type bindTime struct{ began, answered time.Time }

var errSuperseded = errors.New("another agent has the endpoint")

// runAgents binds the row with one agent after the other.
func (g *agentRow) runAgents(ctx context.Context) {
	var old []*rowAgent
	defer func() {
		for _, a := range old {
			a.stop()
		}
	}()
	for g.h.breaking.Load() && ctx.Err() == nil {
		g.mu.Lock()
		g.newest++
		if len(old) > 0 && old[len(old)-1].unsure {
			g.mu.Unlock()
			old[len(old)-1].stop() // its bind may come after the next one's
			g.mu.Lock()
		}
		a := g.startAgent(g.newest)
		g.mu.Unlock()
		old = append(old, a)
		if len(old) > 3 {
			old[0].stop()
			old = old[1:]
		}
		select {
		case at := <-a.bound:
			g.take(ctx, a, at)
		case <-time.After(8 * time.Second):
		case <-ctx.Done():
		}
		g.h.pause(g.random, time.Second)
		if g.random.IntN(4) == 0 && !g.h.isQuiet() {
			g.stopSession(ctx, a)
		}
	}
}

// take raises the row's number to that of the agent that has bound it: at once when nothing kept
// the services from telling each other, else when they have compared with the store.
func (g *agentRow) take(ctx context.Context, a *rowAgent, at bindTime) {
	quiet := g.h.faults.quietSince(at.began.Add(-historyLease - 2*time.Second))
	if quiet && at.answered.Sub(at.began) < 450*time.Millisecond {
		g.h.counts.strict.Add(1)
		g.raise(a.n)
		g.probeAll(ctx)
		return
	}
	if g.h.isQuiet() {
		return // the next agent may be quicker
	}
	select {
	case <-time.After(5 * time.Second):
		g.raise(a.n)
	case <-ctx.Done():
	}
}

// stopSession stops the agent's session through any service. Its agent answers nothing from then
// on.
func (g *agentRow) stopSession(ctx context.Context, a *rowAgent) {
	s := a.Session()
	to := g.h.any(g.random)
	if s == nil || to == nil {
		return
	}
	began, path := time.Now(), "/tunnel_sessions/"+s.ID()+"/stop"
	stopped := g.h.call(ctx, to, g.h.apiKey, http.MethodPost, path, nil).outcome == acknowledged
	now := a.Session()
	// else the agent may have had another session when this one was stopped
	if stopped && (now == nil || now == s) && g.h.faults.quietSince(began.Add(-2*time.Second)) {
		g.h.counts.strict.Add(1)
		g.raise(a.n + 1)
		g.probeAll(ctx)
	}
}

// probeAll requests the row from all services.
func (g *agentRow) probeAll(ctx context.Context) {
	for _, r := range g.h.replicas {
		if now := r.now.Load(); now != nil {
			g.probe(ctx, now)
		}
	}
}

// startAgent starts the agent with the number; mu must be held.
func (g *agentRow) startAgent(n int64) *rowAgent {
	a := &rowAgent{n: n, bound: make(chan bindTime, 1)}
	config, err := trust.Options{CASHA256: g.h.fingerprint}.ClientConfig()
	if err != nil {
		g.h.t.Error(err)
	}
	dial, legs := g.h.dialAny(g.random), 3
	if g.random.IntN(4) > 0 || g.h.isQuiet() {
		// it is where the one before is not, so that services must tell each other
		dial, legs = g.h.dialFirst(n), 1
	}
	a.Client = tunnel.NewClient(tunnel.ClientConfig{
		Address: "127.0.0.1:8443", TLS: config, MaxBackoff: 300 * time.Millisecond, MaxLegs: legs, DialContext: dial,
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: g.h.authtoken, ClientVersion: "0.0.0-test", OS: "linux",
				InstanceID: fmt.Sprint(g.host, n)}
		},
		OnUp:     func(ctx context.Context, s *tunnel.Session) error { return g.bind(ctx, s, a) },
		OnStream: func(_ context.Context, _ *tunnel.Session, st *tunnel.Stream) { answerStream(st, n) },
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.h.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.Run(ctx)
	}()
	a.stop = func() { cancel(); <-done }
	return a
}

// bind binds the row, unless it is another agent's.
func (g *agentRow) bind(ctx context.Context, s *tunnel.Session, a *rowAgent) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.newest != a.n {
		return errSuperseded
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	began := time.Now()
	got, err := s.Bind(ctx, tunnel.Bind{URL: g.url(), Binding: "public", UpstreamURL: "http://localhost:1",
		UpstreamProtocol: "http1", ResumeSecret: g.secret})
	if err != nil {
		a.unsure = true
		return err
	}
	g.secret = got.ResumeSecret
	select {
	case a.bound <- bindTime{began, time.Now()}:
	default:
	}
	return nil
}

// answerStream answers a request with the number.
func answerStream(st *tunnel.Stream, n int64) {
	if st.Accept() != nil {
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(st))
	if err != nil {
		return
	}
	_ = r.Body.Close()
	text := fmt.Sprint("generation ", n)
	_, _ = fmt.Fprintf(st, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	_ = st.CloseWrite()
}
