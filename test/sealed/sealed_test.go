// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// upstream serves TCP by serve.
func upstream(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return ln.Addr().String()
}

// digest answers, once the caller has sent everything, with a prefix and what it was sent.
func digest(prefix string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		text, err := io.ReadAll(c)
		if err == nil {
			_, _ = c.Write(append([]byte(prefix), text...))
		}
	}
}

func TestSealed_HalfCloseBothWays(t *testing.T) { overBothPaths(t, testSealedHalfCloseBothWays) }

func testSealedHalfCloseBothWays(t *testing.T) {
	r := newRig(t)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("got ")), r.owner.Identity(databaseURL)))
	trust := r.owner.Trust()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	for range 3 { // the later ones resume the TLS session
		c := r.call(id, trust)
		_, err := c.Write(sent)
		must.Succeed(t, err)
		must.Succeed(t, c.CloseWrite())
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, append([]byte("got "), sent...)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if f := servicetest.Receive(t, c.failure, "end"); f != nil {
			t.Errorf("%+v", f)
		}
	}
}

func TestSealed_AbortIsNoEnd(t *testing.T) { overBothPaths(t, testSealedAbortIsNoEnd) }

func testSealedAbortIsNoEnd(t *testing.T) {
	r := newRig(t)
	result := make(chan error, 1)
	abort := upstream(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "half")
		_, _ = io.ReadFull(c, make([]byte, 2))
		_ = c.SetLinger(0)
	})
	read := upstream(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "half")
		_, err := io.Copy(io.Discard, c)
		result <- err
	})
	trust := r.owner.Trust()
	c := r.call(r.serve("in-a", r.endpoint(abort, r.owner.Identity(databaseURL))), trust)
	_, _ = io.WriteString(c, "go")
	if got, err := io.ReadAll(c); err == nil {
		t.Errorf("an abort of the upstream is an end after %q", got)
	}
	other := newRig(t)
	c = other.call(other.serve("in-a", other.endpoint(read, other.owner.Identity(databaseURL))), other.owner.Trust())
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetLinger(0)
	_ = c.Close()
	if err := servicetest.Receive(t, result, "end at the upstream"); err == nil {
		t.Error("an abort of the caller is an end at the upstream")
	}
}

// TestSealed_Refusals holds that a call which may not be served ends with its code, and reaches no
// upstream.
func TestSealed_Refusals(t *testing.T) { overBothPaths(t, testSealedRefusals) }

func testSealedRefusals(t *testing.T) {
	reached := func(t *testing.T) string {
		return upstream(t, func(*net.TCPConn) { t.Error("the upstream was reached") })
	}
	for name, c := range map[string]struct {
		call func(*testing.T, *rig) call
		code account.Code
		text string
	}{
		"another owner's certificate": {func(t *testing.T, r *rig) call {
			other := sealtest.NewOwner(t, r.owner.Account)
			return r.call(r.serve("in-a", r.endpoint(reached(t), other.Identity(databaseURL))), r.owner.Trust())
		}, account.CodeSealUntrusted, "no authority that is trusted for it has signed"},
		"a certificate of another endpoint": {func(t *testing.T, r *rig) call {
			u := databaseURL
			u.Host = "other.demo"
			return r.call(r.serve("in-a", r.endpoint(reached(t), r.owner.Identity(u))), r.owner.Trust())
		}, account.CodeSealUntrusted, "is for another account or other endpoints"},
		"a plain agent": {func(t *testing.T, r *rig) call {
			return r.call(r.serve("in-a", r.endpoint(reached(t), nil)), r.owner.Trust())
		}, account.CodeNotSealed, "start it with --sealed"},
		"a plain call": {func(t *testing.T, r *rig) call {
			return r.call(r.serve("in-a", r.endpoint(reached(t), r.owner.Identity(databaseURL))), nil)
		}, account.CodeEndpointSealed, "is sealed"},
		"an upstream that is down": {func(t *testing.T, r *rig) call {
			return r.call(r.serve("in-a", r.endpoint(closedport.Reserve(t), r.owner.Identity(databaseURL))),
				r.owner.Trust())
		}, account.CodeUpstreamUnreachable, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			made := c.call(t, r)
			_, _ = io.WriteString(made, "secret")
			f := servicetest.Receive(t, made.failure, "failure")
			if f == nil || f.Code != c.code || !strings.Contains(f.Msg, c.text) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestSealed_Prefer holds that a call is plain while no agent seals and none was sealed, sealed as soon as
// one does, and refused when the service says again that none does after that was recorded.
// TestSealed_RefusalsAreEvents holds that the account learns from its audit log, once an hour, that a
// cluster refuses an agent.
func TestSealed_RefusalsAreEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := sealtest.NewOwner(t, r.owner.Account)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("")), other.Identity(databaseURL)))
	refused := func() []account.AuditEvent {
		var page struct{ Events []account.AuditEvent }
		r.CallAPI(http.MethodGet, "/events?type="+string(account.AuditSealRefused), nil, &page)
		return page.Events
	}
	for range 2 {
		servicetest.Receive(t, r.call(id, r.owner.Trust()).failure, "failure")
		servicetest.Eventually(t, "an event", func() bool { return len(refused()) > 0 })
	}
	c := r.call(id, other.Trust()) // until it has ended, the second refusal has been recorded, too
	must.Succeed(t, c.CloseWrite())
	_, _ = io.Copy(io.Discard, c)
	servicetest.Receive(t, c.failure, "end")
	events := refused()
	if len(events) != 1 || events[0].Object.ID != id || events[0].Details["url"] != databaseURL.String() ||
		events[0].Details["operator"] == "" {
		t.Errorf("%+v", events)
	}
}

func TestSealed_Prefer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rules := func(pins map[string]string) *sealed.Trust {
		d := endpointtrust.Compile([]endpointtrust.Policy{{Namespace: "demo", Name: "all", Pins: pins,
			Spec: endpointtrust.Spec{Endpoints: []string{"*"}, Mode: sealed.Prefer}}},
			endpointtrust.Default{Mode: sealed.Off, Account: r.owner.Account,
				Authorities: []*x509.Certificate{r.owner.Root}}, endpointaccess.Listed{"": true}).Decide(databaseURL)
		trust, err := sealed.NewTrust(d.Trust)
		must.Succeed(t, err)
		return trust
	}
	answer := func(id string, trust *sealed.Trust, want string) {
		t.Helper()
		c := r.call(id, trust)
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != want {
			t.Errorf("%q, %v, %+v", got, err, <-c.failure)
		}
	}
	id := r.serve("in-a", r.endpoint(upstream(t, digest("plain")), nil))
	answer(id, rules(nil), "plain")
	r.serve("in-b", r.endpoint(upstream(t, digest("sealed")), r.owner.Identity(databaseURL)))
	answer(id, rules(nil), "sealed")
	other := newRig(t) // its service says that no agent seals
	other.owner = r.owner
	id = other.serve("in-a", other.endpoint(upstream(t, digest("plain")), nil))
	r = other
	recorded := rules(map[string]string{databaseURL.String(): "sha256/x"})
	f := servicetest.Receive(t, r.call(id, recorded).failure, "failure")
	if f == nil || f.Code != account.CodeNotSealed {
		t.Errorf("%+v", f)
	}
	answer(id, rules(nil), "plain")
}

// TestSealed_TriesOtherMembers holds that a member of the pool whose upstream is down, or that the
// cluster does not trust, is passed over.
func TestSealed_TriesOtherMembers(t *testing.T) { overBothPaths(t, testSealedTriesOtherMembers) }

func testSealedTriesOtherMembers(t *testing.T) {
	r := newRig(t)
	id := r.serve("in-a", r.endpoint(closedport.Reserve(t), r.owner.Identity(databaseURL)))
	r.serve("in-b", r.endpoint(upstream(t, digest("b ")), r.owner.Identity(databaseURL)))
	r.serve("in-c", r.endpoint(upstream(t, digest("c ")), sealtest.NewOwner(t, r.owner.Account).Identity(databaseURL)))
	trust := r.owner.Trust()
	for range 10 {
		c := r.call(id, trust)
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "b hello" {
			t.Errorf("%q, %v, %+v", got, err, <-c.failure)
		}
	}
}

// TestSealed_PassesOverImpostors holds that members of the pool which claim to be others, as one with a
// stolen authtoken and no certificate can, keep no call from the one that seals.
func TestSealed_PassesOverImpostors(t *testing.T) { overBothPaths(t, testSealedPassesOverImpostors) }

func testSealedPassesOverImpostors(t *testing.T) {
	r := newRig(t)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("a ")), r.owner.Identity(databaseURL)))
	var met atomic.Int32
	key := sealtest.NewOwner(t, r.owner.Account).Identity(databaseURL).Key()
	impostor := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: databaseURL.String(), Binding: account.BindingKubernetes,
		PoolingEnabled: true, UpstreamURL: "tcp://localhost:5432", SealKey: sealed.FormatKey(key)},
		func(_ context.Context, st *tunnel.Stream) {
			met.Add(1)
			_ = st.Accept()
			_, _ = st.Write(sealed.Hint(id)) // as the edge names the good one
			_, _ = io.Copy(io.Discard, st)
		})
	servicetest.Receive(t, impostor.Bound, "bind")
	trust := r.owner.Trust()
	for range 10 {
		c := r.call(id, trust)
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "a hello" {
			t.Errorf("%q, %v, %+v", got, err, <-c.failure)
		}
	}
	if met.Load() == 0 {
		t.Error("no call met the impostor")
	}
}

// TestSealed_PassesOverManyImpostors holds that a good member serves whatever the number of those that fail
// the seal.
func TestSealed_PassesOverManyImpostors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("a ")), r.owner.Identity(databaseURL)))
	trust := r.owner.Trust()
	answered := func() {
		c := r.call(id, trust)
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "a " {
			t.Errorf("%q, %v, %+v", got, err, <-c.failure)
		}
	}
	answered() // the others are chosen first from now on
	key := sealtest.NewOwner(t, r.owner.Account).Identity(databaseURL).Key()
	var met atomic.Int32
	for i := range 20 {
		impostor := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: databaseURL.String(), Name: strconv.Itoa(i),
			PoolingEnabled: true, Binding: account.BindingKubernetes, UpstreamURL: "tcp://localhost:5432",
			SealKey: sealed.FormatKey(key)},
			func(_ context.Context, st *tunnel.Stream) {
				met.Add(1)
				_ = st.Accept()
				_, _ = io.WriteString(st, "what is no TLS record is refused at once")
			})
		servicetest.Receive(t, impostor.Bound, "bind")
	}
	if answered(); met.Load() != 20 {
		t.Errorf("the call met %d impostors", met.Load())
	}
}

// TestSealed_OutlivesOpenTimeout holds that the time for opening a connection does not bound it.
func TestSealed_OutlivesOpenTimeout(t *testing.T) { overBothPaths(t, testSealedOutlivesOpenTimeout) }

func testSealedOutlivesOpenTimeout(t *testing.T) {
	r := newRig(t)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("got ")), r.owner.Identity(databaseURL)))
	// a busy machine may need more than the first ones for opening the connection
	for timeout := 500 * time.Millisecond; ; timeout *= 2 {
		r.relay.Timing.OpenTimeout = timeout
		c := r.call(id, r.owner.Trust())
		_, _ = io.WriteString(c, "x")
		time.Sleep(2 * timeout) // for it to pass
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		failure := servicetest.Receive(t, c.failure, "end")
		if err == nil && string(got) == "got x" {
			return
		}
		if timeout > 4*time.Second {
			t.Fatalf("%q, %v, %+v", got, err, failure)
		}
	}
}
