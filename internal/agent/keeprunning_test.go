// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
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
	next[agent.Connected](r)
	b.svc.cut()
	next[agent.Retrying](r)
	next[agent.Connected](r)
	b.svc.cut()
	next[agent.Retrying](r) // the same cause again: it was connected between
	r.agent.Set([]agent.Endpoint{tcpEndpoint(t, "a")})
	next[agent.Online](r)
	r.agent.Set(nil)
	next[agent.Removed](r)
	r.stop()
	if e := next[agent.Stopped](r); !e.ServerTold {
		t.Errorf("%+v", e)
	}
}
