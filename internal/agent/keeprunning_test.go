// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestKeepRunning_RefusalsEndNothing(t *testing.T) {
	t.Parallel()
	for _, code := range []tunnel.Code{tunnel.CodeURLTaken, tunnel.CodeInvalid, tunnel.CodeForbidden, tunnel.CodeLimit,
		tunnel.CodeInternal, tunnel.CodeUnavailable, tunnel.CodeBadToken} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			b := newBoard(t)
			b.refuse("a.demo", code)
			r, _ := b.keeps(t, nil, "a")
			if e := next[agent.BindRefused](r); e.Key != "a" || e.Code != code || e.Cause != "a.demo is refused" ||
				e.StillBound {
				t.Errorf("%+v", e)
			}
			b.refuse("a.demo", "")
			if e := next[agent.Online](r); e.SessionID != "ts-1" {
				t.Errorf("bound by another session: %+v", e)
			}
			s := receive(t, b.svc.bound, "session")
			s.Stop(code, "words")
			if e := next[agent.Retrying](r); e.Code != code || e.Cause != "words" || !e.WasOnline {
				t.Errorf("%+v", e)
			}
			if e := next[agent.Online](r); e.SessionID != "ts-2" {
				t.Errorf("%+v", e)
			}
			r.stop()
			if err := r.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKeepRunning_RefusedHelloIsRepeated(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	var mended atomic.Bool
	b.svc.hello = func(h tunnel.Hello) error {
		if mended.Load() {
			return nil
		}
		return &tunnel.Error{Code: tunnel.CodeBadToken, Msg: "this is an API key", Detail: "ERR_FL_1003"}
	}
	r, _ := b.keeps(t, nil, "a")
	if e := next[agent.Retrying](r); e.Code != tunnel.CodeBadToken || e.WasOnline ||
		!strings.Contains(e.Cause, "update all servers") {
		t.Errorf("%+v", e)
	}
	mended.Store(true)
	next[agent.Online](r)
}

func TestKeepRunning_WithoutEndpoints(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	r, _ := b.keeps(t, nil)
	for range 2 { // the same cause again is reported: it was connected between
		next[agent.Connected](r)
		b.svc.session().Stop(tunnel.CodeUnavailable, "words")
		next[agent.Retrying](r)
	}
	next[agent.Connected](r)
	r.agent.Set([]agent.Endpoint{tcpEndpoint(t, "a")})
	next[agent.Online](r)
	r.agent.Set(nil)
	next[agent.Removed](r)
	r.stop()
	if e := next[agent.Stopped](r); !e.ServerTold {
		t.Errorf("%+v", e)
	}
}

// TestSet_ReleasesRemoved holds that nothing is kept of endpoints that came and went, online or
// not.
func TestSet_ReleasesRemoved(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.refuse("c.demo", tunnel.CodeURLTaken)
	r, all := b.keeps(t, func(o *agent.Options) { o.DrainTimeout = time.Millisecond }, "a", "b", "c")
	next[agent.BindRefused](r)
	for range 10 {
		r.agent.Set(all)
		r.agent.Set(all[:1])
	}
	wait.Until(t, "one endpoint to be known", func() bool {
		endpoints, ids := r.agent.Known()
		return endpoints == 1 && ids == 1
	})
	b.svc.cut()
	r.agent.Set(nil)
	wait.Until(t, "no endpoint to be known", func() bool {
		endpoints, ids := r.agent.Known()
		return endpoints == 0 && ids == 0
	})
}

// TestBind_ManyAtATime holds that agent and server let 64 binds overlap.
func TestBind_ManyAtATime(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	grant, together := b.svc.bind, make(chan struct{})
	var waiting atomic.Int32
	b.svc.bind = func(ctx context.Context, s *tunnel.Session, bind tunnel.Bind) (tunnel.Bound, error) {
		if waiting.Add(1) == 64 {
			close(together)
		}
		select {
		case <-together:
			return grant(ctx, s, bind)
		case <-ctx.Done():
			return tunnel.Bound{}, ctx.Err()
		}
	}
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("e-%d", i))
	}
	r, _ := b.keeps(t, nil, names...)
	for range names {
		next[agent.Online](r)
	}
	if refused := remaining[agent.BindRefused](r); len(refused) > 0 {
		t.Errorf("%+v", refused)
	}
}
