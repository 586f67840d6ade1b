// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// spareRig is a forwarder that keeps spares for tcp://db.demo:5432.
type spareRig struct {
	t     *testing.T
	relay *Relay
	owner *sealtest.Owner
	bound tunnel.Bound
}

// newSpareRig starts an agent that serves calls, and spares by onSpare.
func newSpareRig(t *testing.T, onSpare func(in *sealed.Incoming, st *tunnel.Stream)) *spareRig {
	t.Helper()
	s := servicetest.Start(t)
	client := s.StartForwarder().Client
	session, err := client.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	r := &spareRig{t: t, owner: sealtest.NewOwner(t, session.Welcome().AccountID),
		relay: &Relay{Sessions: clientSessions{client}, Timing: DefaultTiming(), Context: t.Context()}}
	identity := r.owner.Identity(databaseURL)
	agent := s.StartAgentWith(s.Authtoken, tunnel.Bind{URL: databaseURL.String(), UpstreamURL: "tcp://localhost:5432",
		SealKey: sealed.FormatKey(identity.Key())}, func(ctx context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		in, err := identity.Handshake(ctx, st)
		if err != nil {
			return
		}
		if h := st.Header(); h.IsSpare() {
			onSpare(in, st)
		} else if in.Receive(ctx) == nil {
			serveIncoming(in)
		}
	})
	r.bound = servicetest.Receive(t, agent.Bound, "bind")
	ctx, stop := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { r.relay.KeepSpares(ctx) })
	t.Cleanup(func() { stop(); keeping.Wait() })
	return r
}

var databaseURL = account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}

func serveIncoming(in *sealed.Incoming) {
	if conn, err := in.Open(); err == nil {
		_, _ = io.Copy(conn, struct{ io.Reader }{conn})
		_ = conn.CloseWrite()
		_ = conn.Close()
	}
}

// call makes a call and checks that it is answered.
func (r *spareRig) call(trust *sealed.Trust) {
	r.t.Helper()
	near, far := tcpPair(r.t)
	c := &Conn{Header: servicetest.OpenHeader(r.t, r.bound), Stats: noStats{}}
	r.relay.Init(c, near, databaseURL)
	defer c.Release()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		conn, failure := r.relay.OpenSealed(c, trust)
		if failure != nil {
			r.t.Errorf("%+v", failure)
			r.relay.Fail(c, failure)
			return
		}
		r.relay.JoinSealed(c, conn)
	})
	_, _ = io.WriteString(far, "hello")
	_ = far.CloseWrite()
	if got, err := io.ReadAll(far); err != nil || string(got) != "hello" {
		r.t.Errorf("%q, %v", got, err)
	}
}

// state returns how many spares are ready for calls with the trust, and after how long a pause another
// one is made.
func (r *spareRig) state(trust *sealed.Trust) (ready int, pause time.Duration) {
	s := &r.relay.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.sets[spareTarget{databaseURL, r.bound.EndpointID, trust}]
	if set == nil {
		return 0, 0
	}
	for _, p := range set.ready {
		if p.isUsable(time.Now()) {
			ready++
		}
	}
	return ready, set.pause
}

// TestSpares_Failing holds that a call is answered whatever becomes of the spare that it got, and that
// another one is not made at once, nor used.
func TestSpares_Failing(t *testing.T) {
	t.Parallel()
	for name, onUse := range map[string]func(in *sealed.Incoming, st *tunnel.Stream){
		"cut": func(_ *sealed.Incoming, st *tunnel.Stream) { _ = st.Abort() },
		"refused": func(in *sealed.Incoming, _ *tunnel.Stream) {
			_ = in.Refuse(sealed.CodeCallerNotProven, "no")
		},
		"ended":  func(_ *sealed.Incoming, st *tunnel.Stream) { _ = st.CloseWrite() },
		"silent": func(_ *sealed.Incoming, st *tunnel.Stream) { _, _ = io.Copy(io.Discard, st) },
		"garbage": func(_ *sealed.Incoming, st *tunnel.Stream) {
			_, _ = io.WriteString(st, "\x17\x03\x03\x00\x13 opened, so they say")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSpareRig(t, func(in *sealed.Incoming, st *tunnel.Stream) {
				if in.Receive(t.Context()) == nil {
					onUse(in, st)
				}
			})
			trust := r.owner.Trust()
			r.call(trust)
			s := &r.relay.spares
			s.mu.Lock()
			set := s.sets[spareTarget{databaseURL, r.bound.EndpointID, trust}]
			set.wanted = 2
			s.mu.Unlock()
			servicetest.Eventually(t, "two spares", func() bool {
				ready, _ := r.state(trust)
				return ready == 2
			})
			s.mu.Lock()
			before := slices.Clone(set.ready)
			s.mu.Unlock()
			r.call(trust)
			if _, pause := r.state(trust); pause == 0 {
				t.Error("another one is made at once")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if slices.ContainsFunc(set.ready, func(p *spare) bool { return slices.Contains(before, p) }) {
				t.Error("the next call gets one that was made before the failure")
			}
		})
	}
}

// TestSpares_CutWhileIdle holds that a service which cuts spares is not asked for ever more of them.
func TestSpares_CutWhileIdle(t *testing.T) {
	t.Parallel()
	r := newSpareRig(t, func(_ *sealed.Incoming, st *tunnel.Stream) { _ = st.Abort() })
	trust := r.owner.Trust()
	servicetest.Eventually(t, "a pause", func() bool {
		r.call(trust)
		_, pause := r.state(trust)
		return pause > 0
	})
}

// TestSpares_Revoked holds that a spare never sends a header for a call that has another trust or proof
// than it was made with, nor once it is dropped.
func TestSpares_Revoked(t *testing.T) {
	t.Parallel()
	received, ended := make(chan sealed.Header, 10), make(chan error, 10)
	r := newSpareRig(t, func(in *sealed.Incoming, _ *tunnel.Stream) {
		err := in.Receive(t.Context())
		if err == nil {
			received <- in.Header
			serveIncoming(in)
		}
		ended <- err
	})
	var proof atomic.Pointer[tls.Certificate]
	proof.Store(r.owner.Caller("cluster-1", time.Hour))
	trust, err := sealed.NewTrust(sealed.TrustOptions{Account: r.owner.Account,
		Authorities: []*x509.Certificate{r.owner.Root},
		Proof:       func() (*tls.Certificate, error) { return proof.Load(), nil }})
	must.Succeed(t, err)
	r.call(trust)
	servicetest.Eventually(t, "a spare", func() bool { ready, _ := r.state(trust); return ready > 0 })
	r.call(r.owner.Trust()) // as after a change of an EndpointTrust
	proof.Store(r.owner.Caller("cluster-1", time.Hour))
	r.call(trust)
	r.relay.DropSpares()
	if err := servicetest.Receive(t, ended, "end"); err == nil || len(received) > 0 {
		t.Error("a spare of another trust was used")
	}
}
