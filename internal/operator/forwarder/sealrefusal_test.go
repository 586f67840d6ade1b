// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestSealing_ReportsRefusals holds that the status has why an agent's seal was refused, as a change,
// until one is opened or the trust is another one, and that both are counted.
func TestSealing_ReportsRefusals(t *testing.T) {
	t.Parallel()
	u := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
	owner, other := sealtest.NewOwner(t, "ac-1"), sealtest.NewOwner(t, "ac-1")
	var identity atomic.Pointer[sealed.Identity]
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		_, _ = st.Write(sealed.Hint("ep-1"))
		if in, err := identity.Load().Accept(ctx, st); err == nil {
			if c, err := in.Open(); err == nil {
				_ = c.Close()
			}
		}
	})
	rules := &fakeTrust{changed: make(chan struct{}, 10)}
	trust := func(o *sealtest.Owner) {
		rules.set(endpointtrust.Default{Mode: sealed.Require, Account: "ac-1",
			Authorities: []*x509.Certificate{o.Root}}, allListed)
	}
	trust(owner)
	r := start(t, e, shortTiming(), func(o *Options) { o.Trust = rules })
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	reported := func(want sealed.Reason) {
		t.Helper()
		wait.Until(t, "a status with the refusal "+string(want), func() bool {
			for _, l := range r.status().Listeners {
				if l.Port == 15432 {
					return l.SealRefused == nil && want == "" || l.SealRefused != nil && l.SealRefused.Reason == want
				}
			}
			return false
		})
	}
	call := func(of *sealtest.Owner) {
		identity.Store(of.Identity(u))
		if c, err := net.Dial("tcp", r.addr(15432)); err == nil { // else it was reset already
			_, _ = io.ReadAll(c)
			_ = c.Close()
		}
	}
	changed := r.statusChanged.next()
	call(other)
	reported(sealed.KeyUnknown)
	wait.Receive(t, "a change of the status", changed)
	before := r.status()
	if d, different := before.delta(Status{Listeners: before.Listeners}); len(d.Listeners) > 0 {
		t.Errorf("a refusal is a change for ever: %+v, %t", d, different)
	}
	r.listeners.byPort[15432].stats.seal.Load().repeated.Store(time.Now().Add(-outdatedRefusal).UnixNano())
	reported("") // after its agent was mended, maybe
	call(other)
	reported(sealed.KeyUnknown)
	call(owner)
	reported("")
	call(other)
	reported(sealed.KeyUnknown)
	trust(other)
	reported("")
	for outcome, want := range map[string]float64{"opened": 1, "KeyUnknown": 3} {
		if got := testutil.ToFloat64(r.metrics.sealed.WithLabelValues("db.demo", outcome)); got != want {
			t.Errorf("%g connections %s, want %g", got, outcome, want)
		}
	}
}

// TestSealing_FirstSight holds that a connection waits until the endpoint's first key is pinned, and
// that an agent with another key, as one of a service that drops and announces the endpoint again, gets
// none.
func TestSealing_FirstSight(t *testing.T) {
	t.Parallel()
	owner, u := sealtest.NewOwner(t, "ac-1"), account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
	first, second := owner.Identity(u), owner.Identity(u)
	var identity atomic.Pointer[sealed.Identity]
	identity.Store(first)
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		_, _ = st.Write(sealed.Hint("ep-1"))
		if in, err := identity.Load().Accept(ctx, st); err == nil {
			if c, err := in.Open(); err == nil {
				_, _ = io.WriteString(c, "sealed")
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}
	})
	rules := &fakeTrust{changed: make(chan struct{}, 10)}
	policy := endpointtrust.Policy{Namespace: "demo", Name: "all", Spec: endpointtrust.Spec{Endpoints: []string{"*"}}}
	byDefault := endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}
	rules.set(byDefault, allListed, policy)
	r := start(t, e, shortTiming(), func(o *Options) { o.Trust = rules })
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	c := r.dial(15432)
	policy.Pins = map[string]string{u.String(): sealed.FormatKey(first.Key())}
	rules.set(byDefault, allListed, policy)
	if got, err := io.ReadAll(c); err != nil || string(got) != "sealed" {
		t.Errorf("%q, %v", got, err)
	}
	identity.Store(second)
	wantRefused(r, 15432)
	wait.Until(t, "the refusal of the other key", func() bool {
		s := r.listeners.byPort[15432].status()
		return s.SealRefused != nil && s.SealRefused.Reason == sealed.KeyChanged &&
			strings.Contains(s.SealRefused.Message, sealed.FormatKey(second.Key()))
	})
}

// TestSealing_Prefer holds that connections are plain while no agent seals and none was sealed. From the
// first sealed one on, a service that drops the flag gets none: at once in the same forwarder, which
// reports the URL until it is recorded, and by the record in every other.
func TestSealing_Prefer(t *testing.T) {
	t.Parallel()
	owner, u := sealtest.NewOwner(t, "ac-1"), account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
	identity := owner.Identity(u)
	var seals atomic.Bool
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
		switch h := st.Header(); {
		case h.Sealed && seals.Load():
			serveSealed(ctx, t, st, identity)
		case h.Sealed:
			_ = st.Refuse(tunnel.RefusedNotSealed)
		default:
			_ = st.Accept()
			_, _ = io.WriteString(st, "plain")
			_ = st.CloseWrite()
			_, _ = io.Copy(io.Discard, struct{ io.Reader }{st})
			_ = st.Close()
		}
	})
	policy := endpointtrust.Policy{Namespace: "demo", Name: "all", Spec: endpointtrust.Spec{Endpoints: []string{"*"},
		Mode: sealed.Prefer}}
	byDefault := endpointtrust.Default{Mode: sealed.Off, Account: "ac-1", Authorities: []*x509.Certificate{owner.Root}}
	run := func() (*runningForwarder, *fakeTrust) {
		rules := &fakeTrust{changed: make(chan struct{}, 10)}
		rules.set(byDefault, allListed, policy)
		r := start(t, e, shortTiming(), func(o *Options) { o.Trust = rules })
		r.source.update(testObjects())
		wait.Receive(t, "a session", r.edge.connectedOnce)
		return r, rules
	}
	r, rules := run()
	call := func(want string) {
		t.Helper()
		if got, err := io.ReadAll(r.dial(15432)); err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%q, %v", got, err)
		}
	}
	reported := func(want string) {
		t.Helper()
		wait.Until(t, "the report of "+want, func() bool {
			return slices.ContainsFunc(r.status().Listeners, func(l ListenerStatus) bool {
				return l.Port == 15432 && l.SealKey == want
			})
		})
	}
	call("plain")
	reported("")
	changed := r.statusChanged.next()
	seals.Store(true)
	call("sealed")
	wait.Receive(t, "a change of the status", changed)
	reported(sealed.FormatKey(identity.Key()))
	seals.Store(false)
	wantRefused(r, 15432)
	policy.Pins = map[string]string{u.String(): sealed.FormatKey(identity.Key())}
	rules.set(byDefault, allListed, policy)
	reported("")
	wantRefused(r, 15432)
	r, rules = run()
	wantRefused(r, 15432)
	if s := r.listeners.byPort[15432].status().SealRefused; s == nil || s.Reason != sealed.NotSealed {
		t.Errorf("%+v", s)
	}
	policy.Pins = nil // by a person
	rules.set(byDefault, allListed, policy)
	call("plain")
}
