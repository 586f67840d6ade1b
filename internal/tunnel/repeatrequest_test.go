// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// dieOnRequest makes the replica die before it answers a bind or an unbind, which it passes on.
func (r *fakeReplicas) dieOnRequest(p *fakeReplica, binds chan<- Bind) {
	p.handler.bind = func(ctx context.Context, _ *Session, b Bind) (Bound, error) {
		binds <- b
		r.kill(p)
		<-ctx.Done()
		return Bound{}, ctx.Err()
	}
	p.handler.unbind = func(ctx context.Context, _ string) error {
		r.kill(p)
		<-ctx.Done()
		return ctx.Err()
	}
}

// replaceLeg starts a replica in place of one that died and waits for the leg there.
func (r *fakeReplicas) replaceLeg(t *testing.T, s *Session, ids ...string) {
	t.Helper()
	r.start()
	time.Sleep(2 * legSearchPause)
	awaitLegs(t, s, ids...)
}

// TestBind_RepeatedOnOtherReplica checks that a bind whose replica dies before it answers is sent to
// another one with the same BindID, and that of a labelled tunnel only to servers that know BindIDs.
func TestBind_RepeatedOnOtherReplica(t *testing.T) {
	withReplicas(t, 2, ClientConfig{Hello: agentHello}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		binds := make(chan Bind, 4)
		ids := map[string]bool{}
		for i, b := range []Bind{{URL: "http://a.b", Name: "x"}, {Labels: map[string]string{"a": "b"}, Name: "x"}} {
			r.dieOnRequest(r.live[0], binds)
			r.live[1].handler.bind = func(_ context.Context, _ *Session, b Bind) (Bound, error) {
				binds <- b
				return Bound{EndpointID: "ep_x"}, nil
			}
			bound, err := s.Bind(t.Context(), b)
			if err != nil || bound.EndpointID != "ep_x" {
				t.Fatalf("bind %d: %+v, %v", i, bound, err)
			}
			first, again := <-binds, <-binds
			if len(first.BindID) < 26 || first.BindID != again.BindID || ids[first.BindID] {
				t.Errorf("bind %d: sent with %q, and again with %q", i, first.BindID, again.BindID)
			}
			ids[first.BindID] = true
			r.replaceLeg(t, s, []string{"rp_2", "rp_3"}[i], []string{"rp_3", "rp_4"}[i])
		}
		s.welcome.Features = slices.DeleteFunc(s.welcome.Features, func(f Feature) bool { return f == FeatureBindID })
		r.dieOnRequest(r.live[0], binds)
		if _, err := s.Bind(t.Context(), Bind{Labels: map[string]string{"a": "b"}}); err == nil {
			t.Error("the bind of a labelled tunnel was repeated with a server that does not know its BindID")
		}
	})
}

// TestUnbind_RepeatedOnOtherReplica checks that an unbind whose replica dies before it answers is
// sent to another one, for which there may be nothing to unbind any more. One that was sent once is
// refused in this case.
func TestUnbind_RepeatedOnOtherReplica(t *testing.T) {
	withReplicas(t, 2, ClientConfig{Hello: agentHello}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s := c.Session()
		notBound := func(context.Context, string) error { return &Error{Code: CodeInvalid, Msg: "not bound"} }
		r.dieOnRequest(r.live[0], nil)
		r.live[1].handler.unbind = notBound
		if err := s.Unbind(t.Context(), "ep_x"); err != nil {
			t.Errorf("of what the dead replica has unbound: %v", err)
		}
		var refused *Error
		if err := s.Unbind(t.Context(), "ep_x"); !errors.As(err, &refused) || refused.Code != CodeInvalid {
			t.Errorf("the second unbind: %v", err)
		}
		r.replaceLeg(t, s, "rp_2", "rp_3")
		r.dieOnRequest(r.live[0], nil)
		r.live[1].handler.unbind = nil
		if err := s.Unbind(t.Context(), "ep_y"); err != nil || !slices.Contains(r.live[0].handler.unbound, "ep_y") {
			t.Errorf("repeated: %v, unbound %q", err, r.live[0].handler.unbound)
		}
	})
}
