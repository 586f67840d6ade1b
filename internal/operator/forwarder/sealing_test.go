// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// fakeTrust are rules that tests replace.
type fakeTrust struct {
	current atomic.Pointer[endpointtrust.Rules]
	changed chan struct{}
}

func (r *fakeTrust) Snapshot() *endpointtrust.Rules { return r.current.Load() }
func (r *fakeTrust) Changed() <-chan struct{}       { return r.changed }

func (r *fakeTrust) set(d endpointtrust.Default, listed endpointaccess.Listed, all ...endpointtrust.Policy) {
	r.current.Store(endpointtrust.Compile(all, d, listed))
	r.changed <- struct{}{}
}

var allListed = endpointaccess.Listed{"": true}

// serveSealed is an agent that tells the caller its address.
func serveSealed(ctx context.Context, t *testing.T, st *tunnel.Stream, identity *sealed.Identity) {
	_ = st.Accept()
	_, _ = st.Write(sealed.Hint("ep-1"))
	in, err := identity.Accept(ctx, st)
	if err != nil {
		t.Errorf("the agent did not accept: %v", err)
		return
	}
	c, err := in.Open()
	if err != nil {
		t.Errorf("the agent did not open: %v", err)
		return
	}
	_, _ = io.WriteString(c, "sealed from "+in.Header.ClientAddr)
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

// TestSealing_WaitsForRulesAndSeals holds that no connection is opened before it is known whom the
// endpoint's owner trusts, and that it is then sealed.
func TestSealing_WaitsForRulesAndSeals(t *testing.T) {
	t.Parallel()
	u := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
	owner := sealtest.NewOwner(t, "ac-1")
	identity := owner.Identity(u)
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) { serveSealed(ctx, t, st, identity) })
	byDefault := endpointtrust.Default{Mode: sealed.Require, Account: "ac-1",
		Authorities: []*x509.Certificate{owner.Root}}
	rules := &fakeTrust{changed: make(chan struct{}, 10)}
	rules.set(byDefault, endpointaccess.Listed{})
	r := start(t, e, shortTiming(), func(o *Options) { o.Trust = rules })
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	c := r.dial(15432)
	rules.set(byDefault, allListed)
	if got, err := io.ReadAll(c); err != nil || string(got) != "sealed from "+c.LocalAddr().String() {
		t.Errorf("%q, %v", got, err)
	}
	if h := wait.Receive(t, "a stream", e.streams); !h.Sealed {
		t.Errorf("%+v", h)
	}
	rules.set(byDefault, allListed, endpointtrust.Policy{Namespace: "demo", Name: "typo", Spec: endpointtrust.Spec{
		Endpoints: []string{"db", "api"}, Keys: []string{"sha256/typo"}}})
	if res, body := get(t, r.dial(10080), "/"); res.StatusCode != 503 || !strings.Contains(body, "ERR_FL_3018") ||
		strings.Contains(body, "typo") {
		t.Errorf("a client is answered %s, %s", res.Status, body)
	}
	wantRefused(r, 15432)
	wait.Until(t, "a failure that names the object", func() bool {
		f := r.listeners.byPort[15432].status().LastFailure
		return f != nil && strings.Contains(f.Message, "EndpointTrust demo/typo")
	})
}

// sealedForwarder runs a forwarder that requires the owner's seal.
func sealedForwarder(t *testing.T, e *fakeEdge, owner *sealtest.Owner, configure ...func(*Options)) *runningForwarder {
	t.Helper()
	rules := &fakeTrust{changed: make(chan struct{}, 10)}
	rules.set(endpointtrust.Default{Mode: sealed.Require, Account: owner.Account,
		Authorities: []*x509.Certificate{owner.Root}}, allListed)
	r := start(t, e, shortTiming(), append(configure, func(o *Options) { o.Trust = rules })...)
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	return r
}

// TestSealing_DrainingEdgeIsNoAttempt holds that an edge which drains is asked again, however often
// it refuses, and that its refusals are no connection.
func TestSealing_DrainingEdgeIsNoAttempt(t *testing.T) {
	t.Parallel()
	var streams atomic.Int32
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		if streams.Add(1) <= 10 {
			_ = st.Refuse(tunnel.RefusedDraining)
			return
		}
		_ = st.Refuse(tunnel.RefusedOffline)
	})
	r := sealedForwarder(t, e, sealtest.NewOwner(t, "ac-1"))
	wantRefused(r, 15432)
	wait.Until(t, "the edge's last refusal", func() bool {
		f := r.listeners.byPort[15432].status().LastFailure
		return f != nil && f.Reason == "offline"
	})
}

// TestSealing_EndsWhatIsNotTrustedAnyMore holds that an open connection goes on while its agent is
// trusted, as during the rotation of a root, and is reset when it is not.
func TestSealing_EndsWhatIsNotTrustedAnyMore(t *testing.T) {
	t.Parallel()
	owner, next := sealtest.NewOwner(t, "ac-1"), sealtest.NewOwner(t, "ac-1")
	identity := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432})
	ended := make(chan error, 1)
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		_, _ = st.Write(sealed.Hint("ep-1"))
		in, err := identity.Accept(ctx, st)
		if err != nil {
			t.Error(err)
			return
		}
		c, err := in.Open()
		if err == nil {
			_, err = io.Copy(c, c)
		}
		ended <- err
	})
	rules := &fakeTrust{changed: make(chan struct{})}
	rules.current.Store(endpointtrust.Compile(nil, endpointtrust.Default{}, allListed))
	r := start(t, e, shortTiming(), func(o *Options) { o.Trust = rules })
	trust := func(roots ...*x509.Certificate) {
		rules.set(endpointtrust.Default{Mode: sealed.Require, Account: owner.Account, Authorities: roots}, allListed)
	}
	trust(owner.Root)
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	c := r.dial(15432)
	echo := func() {
		t.Helper()
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	echo()
	trust(owner.Root, next.Root)
	trust(owner.Root, next.Root) // once it is received, the first one is done
	echo()
	rules.set(endpointtrust.Default{Mode: sealed.Require, Account: owner.Account}, allListed,
		endpointtrust.Policy{Namespace: "demo", Name: "typo", Spec: endpointtrust.Spec{Endpoints: []string{"db"},
			Keys: []string{"sha256/typo"}}})
	trust(owner.Root)
	echo()
	trust(next.Root)
	wantReset(t, c)
	if err := wait.Receive(t, "the end at the agent", ended); err == nil {
		t.Error("it is an ordinary end for the agent")
	}
}

// TestSealing_OlderReplicaIsLeft holds that an older replica, which tells the agent nothing of the seal,
// is not taken for an agent's answer.
func TestSealing_OlderReplicaIsLeft(t *testing.T) {
	t.Parallel()
	owner := sealtest.NewOwner(t, "ac-1")
	identity := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432})
	for name, older := range map[string]int32{"one": 1, "all": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var streams atomic.Int32
			r := sealedForwarder(t, startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
				if streams.Add(1) <= older {
					_ = st.Refuse(tunnel.RefusedSealed)
					return
				}
				serveSealed(ctx, t, st, identity)
			}), owner)
			if name == "one" {
				if got, err := io.ReadAll(r.dial(15432)); err != nil || !strings.HasPrefix(string(got), "sealed") {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			wantRefused(r, 15432)
			wait.Until(t, "the remedy", func() bool {
				f := r.listeners.byPort[15432].status().LastFailure
				return f != nil && strings.Contains(f.Message, "update fairlead-server")
			})
		})
	}
}

// TestSealing_HeaderInsideTheSeal holds that the agent is told how long the forwarder waits, and
// nothing that policies of the edge read: annotations can be longer than what fits.
func TestSealing_HeaderInsideTheSeal(t *testing.T) {
	t.Parallel()
	owner, got := sealtest.NewOwner(t, "ac-1"), make(chan sealed.Header, 1)
	identity := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432})
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		_, _ = st.Write(sealed.Hint("ep-1"))
		in, err := identity.Accept(ctx, st)
		if err != nil { // a further attempt, which the end of the test aborts
			return
		}
		select {
		case got <- in.Header:
		default:
		}
		_ = in.Refuse("UPSTREAM", "it is down")
	})
	pods := newFakePods()
	pods.set(&caller.Pod{PodIdentity: tunnel.PodIdentity{Namespace: "demo", Name: "caller", ServiceAccount: "default",
		Annotations: map[string]string{"example.com/long": strings.Repeat("x", 32<<10)}}})
	r := sealedForwarder(t, e, owner, func(o *Options) { o.Pods = pods })
	if c, err := net.Dial("tcp", r.addr(15432)); err == nil { // else it was reset already
		defer func() { _ = c.Close() }()
	}
	h := wait.Receive(t, "a header", got)
	if h.Deadline <= 0 || h.Deadline > r.timing.OpenTimeout {
		t.Errorf("the agent is told a deadline of %s", h.Deadline)
	}
	if h.Pod == nil || h.Pod.Name != "caller" || h.Pod.Annotations != nil {
		t.Errorf("%+v", h.Pod)
	}
}

// TestSealing_LostReplicaIsReplaced holds that a connection is opened with another replica when its
// own is lost, or does not respond, before an agent has answered: nothing of the client's was sent.
func TestSealing_LostReplicaIsReplaced(t *testing.T) {
	t.Parallel()
	owner := sealtest.NewOwner(t, "ac-1")
	identity := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432})
	for name, tt := range map[string]struct {
		lose   func(*fakeReplica)
		hinted bool
	}{
		"killed before the edge's hint": {losses["killed"], false}, "killed after it": {losses["killed"], true},
		"unresponsive": {losses["unresponsive"], false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first atomic.Bool
			all := startReplicas(t, 2, func(r *fakeReplica, st *tunnel.Stream) {
				if first.CompareAndSwap(false, true) {
					if tt.hinted {
						_ = st.Accept()
						_, _ = io.WriteString(st, "\x04ep-1")
						_, _ = st.Read(make([]byte, 1))
					}
					tt.lose(r)
					return
				}
				serveSealed(t.Context(), t, st, identity)
			})
			r := sealedForwarder(t, all.all[0].fakeEdge, owner)
			r.awaitLegs(2, 2)
			if got, err := io.ReadAll(r.dial(15432)); err != nil || !strings.HasPrefix(string(got), "sealed") {
				t.Errorf("%q, %v: %+v", got, err, r.listeners.byPort[15432].status().LastFailure)
			}
		})
	}
}

// TestSealing_TimePerAgent holds that an agent which accepts and does not answer leaves time for others,
// and that it gets the rest of the time if there is none.
func TestSealing_TimePerAgent(t *testing.T) {
	t.Parallel()
	owner := sealtest.NewOwner(t, "ac-1")
	identity := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432})
	for name, tt := range map[string]struct{ handshakes, alone bool }{
		"without a handshake": {}, "without an upstream": {handshakes: true}, "alone": {alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var streams atomic.Int32
			e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
				if n := streams.Add(1); n == 1 {
					_ = st.Accept()
					_, _ = st.Write(sealed.Hint("ep-slow"))
					if tt.handshakes {
						_, _ = identity.Accept(ctx, st)
					}
					_, _ = io.Copy(io.Discard, struct{ io.Reader }{st}) // until the forwarder gives up
					return
				} else if n == 2 && st.Header().Tried != "ep-slow" || n == 3 && st.Header().Tried != "" {
					t.Errorf("stream %d: %q was tried", n, st.Header().Tried)
				} else if n == 2 && tt.alone {
					_ = st.Refuse(tunnel.RefusedOffline)
					return
				}
				serveSealed(ctx, t, st, identity)
			})
			r := sealedForwarder(t, e, owner)
			if got, err := io.ReadAll(r.dial(15432)); err != nil || !strings.HasPrefix(string(got), "sealed") {
				t.Errorf("%q, %v: %+v", got, err, r.listeners.byPort[15432].status().LastFailure)
			}
		})
	}
}

// TestSealing_ReadyAndReportedOnceListed checks that a forwarder is not ready before it knows whom
// its endpoints' owners trust, and that its status then says what it enforces.
func TestSealing_ReadyAndReportedOnceListed(t *testing.T) {
	t.Parallel()
	byDefault := endpointtrust.Default{Mode: sealed.Off}
	rules := &fakeTrust{changed: make(chan struct{}, 10)}
	rules.set(byDefault, endpointaccess.Listed{"": false})
	r := start(t, startEdge(t, nil), shortTiming(), func(o *Options) { o.Trust = rules })
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	if reason := r.notReadyReason(); r.ready.Load() || !strings.Contains(reason, "EndpointTrust objects") {
		t.Errorf("ready, or not ready for another reason: %s", reason)
	}
	if s := r.status().Trust; s.Complete || len(s.Policies) > 0 {
		t.Errorf("%+v", s)
	}
	changed := r.statusChanged.next()
	rules.set(byDefault, allListed, endpointtrust.Policy{Namespace: "other", Name: "p", UID: "1", Generation: 2,
		Spec: endpointtrust.Spec{Endpoints: []string{"db"}}})
	wait.Receive(t, "a change of the status", changed)
	wait.Until(t, "readiness", r.ready.Load)
	want := endpointaccess.Digest([]endpointtrust.Policy{{Name: "p", UID: "1", Generation: 2}})
	if s := r.status().Trust; !s.Complete || len(s.Policies) != 1 || s.Policies["other"] != want {
		t.Errorf("%+v", s)
	}
}
