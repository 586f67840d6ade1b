// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
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
	_, err := sealed.ReadHint(t.Context(), st)
	must.Succeed(t, err)
	_, err = owner.Trust().Connect(t.Context(), st,
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
		_, err := sealed.ReadHint(t.Context(), st)
		must.Succeed(t, err)
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

// withAccount returns an owner with the same root who signs for another account.
func withAccount(o *sealtest.Owner, accountID string) *sealtest.Owner {
	other := *o
	other.Account = accountID
	return &other
}

// fileProblem is the problem of a file.
type fileProblem struct{ err error }

func (p *fileProblem) Problem() error { return p.err }

// TestRun_ReportsSealProblems checks that a running agent reports what is wrong with a certificate once,
// when it begins, changes and ends.
func TestRun_ReportsSealProblems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
		owner := sealtest.NewOwner(t, "ac-1")
		other := u
		other.Port = 1
		problem := &fileProblem{errors.New("it ends soon")}
		cert, certErr := owner.Server(u), error(nil)
		seal := owner.Identity(u, func(o *sealed.IdentityOptions) {
			o.Files = []sealed.File{problem}
			o.Certificate = func() (*tls.Certificate, error) { return cert, certErr }
		})
		var got []string
		a := agent.New(agent.Options{KeepRunning: true,
			ServerOptions: agent.ServerOptions{Address: "s:1", TLS: &tls.Config{}, Token: func() string { return "x" },
				DialServer: func(context.Context, string, string) (net.Conn, error) {
					return nil, errors.New("there is no server")
				}},
			Endpoints: []agent.Endpoint{{URL: u, Binding: account.BindingKubernetes, Seal: seal}},
			Observer: observerFunc(func(e agent.Event) {
				if e, ok := e.(agent.SealProblem); ok {
					got = append(got, e.Cause)
				}
			})})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		for _, step := range []struct {
			change func()
			want   []string
		}{
			{func() {}, []string{"it ends soon"}},
			{func() { problem.err = errors.New("it has ended") }, []string{"it has ended"}},
			{func() { certErr = errors.New("no such file") }, []string{"reading the agent's certificate: no such file"}},
			{func() { cert, certErr = owner.Server(other), nil },
				[]string{"the agent's certificate does not name tcp://db.demo:5432"}},
			{func() { cert, problem.err = owner.Server(u), nil }, []string{""}},
		} {
			step.change()
			time.Sleep(time.Hour)
			synctest.Wait()
			if !slices.Equal(got, step.want) {
				t.Errorf("reported %q, want %q", got, step.want)
			}
			got = nil
		}
		stop()
		must.Succeed(t, <-ended)
	})
}
