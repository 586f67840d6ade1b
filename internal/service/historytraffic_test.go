// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// quietBefore is how long a service's way to the database must have been whole before a request for
// its answer to count: while the store is away, traffic without a login is served as it was.
const quietBefore = 3 * time.Second

// register is a public endpoint that answers with a number, which only grows: that of its traffic
// policy, or of the agent that has bound it.
type register struct {
	h     *history
	host  string
	floor atomic.Int64 // no request that begins now may be answered with less
}

func (g *register) url() string { return "http://" + g.host }

// raise records that what answers with less than n is over, on all services.
func (g *register) raise(n int64) {
	for {
		before := g.floor.Load()
		if n <= before || g.floor.CompareAndSwap(before, n) {
			return
		}
	}
}

// probe requests the endpoint from a service and checks the answer.
func (g *register) probe(ctx context.Context, at *incarnation) {
	began, floor := time.Now(), g.floor.Load()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.addrs.HTTP.String()+"/", nil)
	if err != nil {
		g.h.t.Error(err)
		return
	}
	r.Host = g.host
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(r)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	text, ok := strings.CutPrefix(string(body), "generation ")
	if err != nil || !ok || res.StatusCode != http.StatusOK {
		return
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		g.h.t.Errorf("%s answers %q", g.host, body)
		return
	}
	if !at.r.database.quietSince(began.Add(-quietBefore)) {
		return
	}
	if g.h.counts.checks.Add(1); n < floor {
		g.h.t.Errorf("%s: generation %d is answered by %s, %s after it began, when %d had been acknowledged", g.host, n,
			at.r.host, time.Since(began), floor)
	}
}

// runProber requests a register from one service, again and again.
func (h *history) runProber(
	ctx context.Context, random *rand.Rand, at *historyReplica, all []*atomic.Pointer[register],
) {
	for h.breaking.Load() && ctx.Err() == nil {
		now, g := at.now.Load(), all[random.IntN(len(all))].Load()
		if now != nil && g != nil {
			g.probe(ctx, now)
		}
		h.pause(random, 30*time.Millisecond)
	}
}

// runPolicies changes the traffic policy of an endpoint through any service.
func (h *history) runPolicies(ctx context.Context, random *rand.Rand, now *atomic.Pointer[register]) {
	path, n := "", int64(0)
	for h.breaking.Load() && ctx.Err() == nil {
		to := h.any(random)
		if to == nil {
			h.pause(random, 100*time.Millisecond)
			continue
		}
		n++
		if path == "" {
			path = h.createRegister(ctx, to, n, now)
			continue
		}
		g := now.Load()
		switch a := h.call(ctx, to, h.apiKey, http.MethodPatch, path,
			map[string]any{"traffic_policy": generationPolicy(n)}); a.outcome {
		case acknowledged:
			h.versions.confirm(a.body)
			g.raise(n)
		case unknown: // it may have an effect later
			path = ""
			now.Store(nil)
		case refused:
		}
		h.pause(random, 200*time.Millisecond)
	}
}

// createRegister makes an endpoint that answers with n, and returns its path in the API; "" when
// that was not answered.
func (h *history) createRegister(
	ctx context.Context, to *incarnation, n int64, now *atomic.Pointer[register],
) string {
	g := &register{h: h, host: fmt.Sprintf("policy%d.example.com", n)}
	a := h.call(ctx, to, h.apiKey, http.MethodPost, "/endpoints", map[string]any{"url": g.url(),
		"bindings": []string{"public"}, "traffic_policy": generationPolicy(n)})
	var made struct{ ID string }
	if a.outcome != acknowledged {
		return ""
	}
	if err := json.Unmarshal(a.body, &made); err != nil || made.ID == "" {
		h.t.Errorf("POST /endpoints: %d %s", a.status, a.body)
		return ""
	}
	g.raise(n)
	now.Store(g)
	return "/endpoints/" + made.ID
}

// dialAny connects an agent to any of the services.
func (h *history) dialAny(random *rand.Rand) func(ctx context.Context, network, addr string) (net.Conn, error) {
	seed := random.Uint64()
	var serial atomic.Uint64
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		to := h.any(rand.New(rand.NewPCG(seed, serial.Add(1))))
		if to == nil {
			return nil, errors.New("no service is ready")
		}
		return new(net.Dialer).DialContext(ctx, network, to.addrs.Service.String())
	}
}

// dialFirst connects the agent with the number to a service that is not that of the number before,
// while all are ready.
func (h *history) dialFirst(n int64) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		for i := range int64(historyReplicas) {
			if to := h.replicas[(n+i)%historyReplicas].now.Load(); to != nil {
				return new(net.Dialer).DialContext(ctx, network, to.addrs.Service.String())
			}
		}
		return nil, errors.New("no service is ready")
	}
}
