// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// TestServe_SealedWhateverTheServiceSays holds that the streams of a service that drops the seal, asks
// for one that there is not, or leads another endpoint's call to this agent reach no upstream.
func TestServe_SealedWhateverTheServiceSays(t *testing.T) {
	t.Parallel()
	owner := sealtest.NewOwner(t, "ac-1")
	all := owner.Identity(account.EndpointURL{Scheme: "tcp", Host: "*.demo", Port: 80})
	dialled := make(chan string, 10)
	start := func(seal *sealed.Identity) *tunnel.Session {
		svc := newService(t).start()
		run(t, svc, "8080", func(o *agent.Options) {
			asTCP(o) // no early look at the upstream
			o.Endpoints[0].Seal = seal
			o.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
				dialled <- addr
				return nil, errors.New("must not be dialled")
			}
		})
		return receive(t, svc.bound, "bind")
	}
	s, h := start(all), header()
	wantRefused(t, s, h, tunnel.RefusedSealed)
	h.Sealed = true
	wantRefused(t, start(nil), h, tunnel.RefusedNotSealed)
	st := open(t, s, h)
	_, err := owner.Trust().Connect(t.Context(), st,
		sealed.Header{URL: account.EndpointURL{Scheme: "tcp", Host: "web.demo", Port: 80}})
	var refused *sealed.RefusedError
	if !errors.As(err, &refused) || refused.Code != sealed.CodeWrongURL {
		t.Errorf("a call of another endpoint: %v", err)
	}
	if len(dialled) != 0 {
		t.Error("the upstream was dialled")
	}
}

// TestServe_SealedCallersMustProve holds that a service which calls the agent itself, with certificates
// that it may have come by, reaches no upstream, and that a proven caller is named.
func TestServe_SealedCallersMustProve(t *testing.T) {
	t.Parallel()
	u := account.EndpointURL{Scheme: "tcp", Host: "hello.demo", Port: 80}
	owner := sealtest.NewOwner(t, "ac-1")
	var reached atomic.Int32
	upstream := tcpUpstream(t, func(c *net.TCPConn) { reached.Add(1) })
	svc := newService(t).start()
	r := run(t, svc, upstream, func(o *agent.Options) {
		asTCP(o)
		o.Endpoints[0].Seal = owner.Identity(u, sealtest.Callers(owner.Pool).Required)
	})
	s, h := receive(t, svc.bound, "bind"), header()
	h.Sealed = true
	connect := func(trust *sealed.Trust) (*sealed.Conn, error) {
		st := open(t, s, h)
		return trust.Connect(t.Context(), st, sealed.Header{URL: u, ClientAddr: "10.0.0.5:4242"})
	}
	for name, c := range map[string]struct {
		proof []*tls.Certificate
		want  string
	}{
		"no proof":        {nil, "it has no certificate"},
		"an agent's":      {[]*tls.Certificate{owner.Server(u)}, "is not for clients"},
		"ended":           {[]*tls.Certificate{owner.Caller("cluster-1", -10*time.Minute)}, "expired"},
		"another owner's": {[]*tls.Certificate{sealtest.NewOwner(t, "ac-1").Caller("cluster-1", time.Hour)}, "unknown"},
		"another account's": {[]*tls.Certificate{withAccount(owner, "ac-2").Caller("cluster-1", time.Hour)},
			"names no caller of account ac-1"},
	} {
		_, err := connect(owner.Trust(c.proof...))
		var refused *sealed.RefusedError
		if !errors.As(err, &refused) || refused.Code != sealed.CodeCallerNotProven ||
			!strings.Contains(refused.Text, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 5 {
		if c := next[agent.Connection](r); !c.Refused || c.Caller != "" || !strings.Contains(c.Cause, "is not proven") {
			t.Errorf("%+v", c)
		}
	}
	if reached.Load() != 0 {
		t.Error("the upstream was reached")
	}
	conn, err := connect(owner.Trust(owner.Caller("cluster-1", time.Hour)))
	must.Succeed(t, err)
	defer func() { _ = conn.Abort() }()
	if c := next[agent.Connection](r); c.Caller != "cluster-1" || c.Client != "10.0.0.5:4242" {
		t.Errorf("%+v", c)
	}
}

// unreachedServer is the server of an endpoint that no call reaches.
type unreachedServer struct{ agent.SealedServer }

func (unreachedServer) Drain() {}

// TestServe_SealedHTTPRefusalIsReported holds that a caller who is refused, as the upstream is down, is
// reported as at a tcp endpoint.
func TestServe_SealedHTTPRefusalIsReported(t *testing.T) {
	t.Parallel()
	u, owner := account.EndpointURL{Scheme: "http", Host: "hello.demo", Port: 80}, sealtest.NewOwner(t, "ac-1")
	svc := newService(t).start()
	r := run(t, svc, closedport.Reserve(t), func(o *agent.Options) {
		o.Endpoints[0].Seal, o.Endpoints[0].SealedServer = owner.Identity(u), unreachedServer{}
	})
	s, h := receive(t, svc.bound, "bind"), header()
	next[agent.UpstreamDown](r)
	h.Sealed = true
	_, err := owner.Trust().Connect(t.Context(), open(t, s, h), sealed.Header{URL: u, ClientAddr: "10.0.0.5:4242"})
	var refused *sealed.RefusedError
	if !errors.As(err, &refused) || refused.Code != "UPSTREAM" {
		t.Errorf("%v", err)
	}
	c := next[agent.Connection](r)
	if !c.Ended || !c.Refused || c.Client != "10.0.0.5:4242" || c.Cause != refused.Text {
		t.Errorf("%+v", c)
	}
}

// withAccount returns an owner with the same root who signs for another account.
func withAccount(o *sealtest.Owner, accountID string) *sealtest.Owner {
	other := *o
	other.Account = accountID
	return &other
}

// leafFile is a file of a certificate, and what is wrong with it.
type leafFile struct {
	cert         *tls.Certificate
	err, problem error
}

// leafFiles is one that changes.
type leafFiles struct{ atomic.Pointer[leafFile] }

func (f *leafFiles) Problem() error { return f.Load().problem }

func (f *leafFiles) certificate() (*tls.Certificate, error) { return f.Load().cert, f.Load().err }

// TestRun_ReportsSealProblems checks that a running agent reports what is wrong with a certificate once,
// when it begins, changes and ends.
func TestRun_ReportsSealProblems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
		owner := sealtest.NewOwner(t, "ac-1")
		other := u
		other.Port = 1
		cert, file := owner.Server(u), &leafFiles{}
		file.Store(&leafFile{cert: cert})
		seal := owner.Identity(u, func(o *sealed.IdentityOptions) {
			o.Files, o.Certificate = []sealed.File{file}, file.certificate
		})
		got := make(chan string, 1000)
		a := agent.New(agent.Options{KeepRunning: true,
			ServerOptions: agent.ServerOptions{Address: "s:1", TLS: &tls.Config{}, Token: func() string { return "x" },
				DialServer: func(context.Context, string, string) (net.Conn, error) {
					return nil, errors.New("there is no server")
				}},
			Endpoints: []agent.Endpoint{{URL: u, Binding: account.BindingKubernetes, Seal: seal}},
			Observer: observerFunc(func(e agent.Event) {
				if e, ok := e.(agent.SealProblem); ok {
					got <- e.Cause
				}
			})})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		for _, step := range []struct {
			file leafFile
			want string
		}{
			{leafFile{cert, nil, errors.New("it ends soon")}, "it ends soon"},
			{leafFile{cert, nil, errors.New("it has ended")}, "it has ended"},
			{leafFile{nil, errors.New("no such file"), nil}, "reading the agent's certificate: no such file"},
			{leafFile{owner.Server(other), nil, nil}, "the agent's certificate does not name tcp://db.demo:5432"},
			{leafFile{owner.Server(u), nil, nil}, ""},
		} {
			file.Store(&step.file)
			time.Sleep(time.Hour)
			synctest.Wait()
			if len(got) != 1 {
				t.Fatalf("%d reports, want %q", len(got), step.want)
			}
			if cause := <-got; cause != step.want {
				t.Errorf("reported %q, want %q", cause, step.want)
			}
		}
		stop()
		must.Succeed(t, <-ended)
	})
}

// denies is a policy that admits no connection.
type denies struct{ agent.SealedServer }

func (denies) Admits(context.Context, *sealed.Incoming) bool { return false }
func (denies) Drain()                                        {}

// TestSet_SealedServesNoPlainStream holds that an endpoint which is to be sealed serves no plain stream
// from then on, and sealed ones by the policy that it has been given, although the service refuses the
// change and goes on sending them.
func TestSet_SealedServesNoPlainStream(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	r, all := b.keeps(t, nil, "a")
	s := receive(t, b.svc.bound, "bind")
	next[agent.Online](r)
	b.refuse("a.demo", tunnel.CodeInvalid)
	plain := all[0]
	owner := sealtest.NewOwner(t, "ac-1")
	all[0].Seal = owner.Identity(all[0].URL)
	r.agent.Set(all)
	wantRefused(t, s, headerFor("a"), tunnel.RefusedSealed)
	if e := next[agent.BindRefused](r); !e.StillBound {
		t.Errorf("%+v", e)
	}
	wantRefused(t, s, headerFor("a"), tunnel.RefusedSealed)
	sealedHeader := headerFor("a")
	sealedHeader.Sealed = true
	admits := func(policy agent.SealedServer) bool {
		all[0].SealedServer = policy
		r.agent.Set(all)
		conn, err := owner.Trust().Connect(t.Context(), open(t, s, sealedHeader), sealed.Header{URL: all[0].URL})
		must.Succeed(t, err)
		defer func() { _ = conn.Abort() }()
		_, err = conn.Read(make([]byte, 1))
		return err == nil
	}
	if admits(denies{}) || !admits(nil) || admits(denies{}) {
		t.Error("the policy that the owner has set is not the one that is applied")
	}
	r.agent.Set([]agent.Endpoint{plain})
	if got := upstreamOf(t, s, headerFor("a")); got != "a" {
		t.Errorf("plain again: %q", got)
	}
}

// TestSet_WithheldServesNoStream holds that streams of an endpoint that must not serve as it did are
// refused at once, although the service never answers the unbind, and that it can come back.
func TestSet_WithheldServesNoStream(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	release := make(chan struct{})
	b.svc.unbind = func() { <-release }
	r, all := b.keeps(t, nil, "a")
	s := receive(t, b.svc.bound, "bind")
	next[agent.Online](r)
	withheld := all[0]
	withheld.Withheld = true
	for _, set := range [][]agent.Endpoint{{withheld}, {withheld}, nil} {
		r.agent.Set(set)
		wantRefused(t, s, headerFor("a"), tunnel.RefusedSealed)
	}
	receive(t, b.svc.unbinds, "unbind")
	r.agent.Set(all)
	if got := upstreamOf(t, s, headerFor("a")); got != "a" {
		t.Errorf("it comes back: %q", got)
	}
	close(release)
	next[agent.Online](r)
}
