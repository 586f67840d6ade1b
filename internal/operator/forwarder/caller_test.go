// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const ownerAccount = "ac-06f0l2rj1qg4o3b5e6s7t8u9v0"

// callerIn returns the certificate of a caller in a folder, as the chart mounts it.
func callerIn(dir string) *authority.Source {
	return &authority.Source{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"),
		CallerOf: ownerAccount}
}

// TestSealing_ProvesCaller holds that an agent learns who calls, and that a forwarder whose certificate
// is of no use says so and calls without.
func TestSealing_ProvesCaller(t *testing.T) {
	t.Parallel()
	owner := sealtest.NewOwner(t, ownerAccount)
	db := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
	another := sealtest.NewOwner(t, "ac-16f0l2rj1qg4o3b5e6s7t8u9v0")
	for name, c := range map[string]struct {
		cert            *tls.Certificate // cert is nil where the folder is empty.
		caller, problem string
	}{
		"proven":             {owner.Caller("cluster-1", time.Hour), "cluster-1", ""},
		"no certificate":     {nil, "", "no such file"},
		"ended":              {owner.Caller("cluster-1", -time.Hour), "", "the certificate is in force from"},
		"an agent's":         {owner.Server(db), "", "for tcp://db.demo:5432 of account " + ownerAccount + ", not"},
		"of another account": {another.Caller("cluster-1", time.Hour), "", "not for a caller of " + ownerAccount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, dir := make(chan string, 10), t.TempDir()
			identity := owner.Identity(db, func(o *sealed.IdentityOptions) { o.Callers = sealtest.Callers(owner.Pool) })
			e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
				_ = st.Accept()
				_, _ = st.Write(sealed.Hint("ep-1"))
				if in, err := identity.Accept(ctx, st); err == nil {
					got <- in.Caller
					_ = in.Refuse("UPSTREAM", "it is down")
				}
			})
			if c.cert != nil {
				sealtest.Write(t, dir, c.cert)
			}
			r := sealedForwarder(t, e, owner, func(o *Options) { o.Caller = callerIn(dir) })
			wantRefused(r, 15432)
			if caller := wait.Receive(t, "a call", got); caller != c.caller {
				t.Errorf("the agent takes the caller for %q, want %q", caller, c.caller)
			}
			if s := r.status().Trust; s.Caller != c.caller || !strings.Contains(s.CallerProblem, c.problem) ||
				(c.problem == "") != (s.CallerProblem == "") {
				t.Errorf("%+v, want the problem %q", s, c.problem)
			}
			if end := r.sealing.callerEnd(); c.problem == "" && end != float64(c.cert.Leaf.NotAfter.Unix()) ||
				c.problem != "" && end != 0 {
				t.Errorf("the metric has the end %v", end)
			}
		})
	}
}

// TestSealing_ProvesCallerByToken holds that an agent learns who calls from a token, and that none goes to
// an agent that is not trusted, or by a namespace alone, nor one that is not for agents.
func TestSealing_ProvesCallerByToken(t *testing.T) {
	t.Parallel()
	owner, file := sealtest.NewOwner(t, ownerAccount), filepath.Join(t.TempDir(), "token")
	cluster, other := owner.NewCluster("cluster-1"), sealtest.NewOwner(t, ownerAccount)
	db := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
	callers := owner.WriteCallers(t.TempDir(), owner.SignClusters(0, cluster))
	for name, c := range map[string]struct {
		agent                  *sealtest.Owner
		token, caller, problem string
		trusted                func(agent *sealed.Identity) endpointtrust.Spec // trusted is the namespace's object.
	}{
		"proven":             {owner, cluster.Token(nil), "cluster-1", "", nil},
		"for the Kubernetes": {owner, cluster.Token(sealtest.Claims{"aud": []string{"k"}}), "", "not for", nil},
		"an untrusted agent": {other, cluster.Token(nil), "not asked", "", nil},
		"a namespace's key": {other, cluster.Token(nil), "", "", func(agent *sealed.Identity) endpointtrust.Spec {
			return endpointtrust.Spec{Keys: []string{sealed.FormatKey(agent.Key())}}
		}},
		"a namespace's authority": {other, cluster.Token(nil), "", "", func(*sealed.Identity) endpointtrust.Spec {
			return endpointtrust.Spec{Authorities: []string{other.PEM(), owner.PEM()}}
		}},
		"the owner's, by the namespace": {owner, cluster.Token(nil), "cluster-1", "",
			func(*sealed.Identity) endpointtrust.Spec {
				return endpointtrust.Spec{Authorities: []string{owner.PEM()}}
			}},
	} {
		asked, got := make(chan string, 10), make(chan string, 10)
		identity := c.agent.Identity(db, func(o *sealed.IdentityOptions) { o.Callers = recording{callers, asked} })
		e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
			_ = st.Accept()
			_, _ = st.Write(sealed.Hint("ep-1"))
			in, err := identity.Accept(ctx, st)
			if err != nil {
				got <- "not asked"
				return
			}
			got <- in.Caller
			_ = in.Refuse("UPSTREAM", "it is down")
		})
		must.Succeed(t, os.WriteFile(file, []byte(c.token), 0o600))
		r := sealedForwarder(t, e, owner, func(o *Options) {
			o.CallerToken = authority.FollowToken(file, ownerAccount)
		})
		if c.trusted != nil {
			spec := c.trusted(identity)
			spec.Endpoints = []string{"*"}
			r.options.Trust.(*fakeTrust).set(endpointtrust.Default{Mode: sealed.Off, Account: ownerAccount,
				Authorities: []*x509.Certificate{sealtest.NewOwner(t, ownerAccount).Root, owner.Root}}, allListed,
				endpointtrust.Policy{Namespace: "demo", Name: "p", Spec: spec})
		}
		wantRefused(r, 15432)
		if caller := wait.Receive(t, "a call", got); caller != c.caller {
			t.Errorf("%s: the agent takes the caller for %q, want %q", name, caller, c.caller)
		}
		if (len(asked) > 0) != (c.caller == "cluster-1") {
			t.Errorf("%s: %d tokens reached the agent", name, len(asked))
		}
		s := r.status().Trust
		if !strings.Contains(s.CallerProblem, c.problem) || (c.problem == "") != (s.CallerProblem == "") {
			t.Errorf("%s: %+v, want the problem %q", name, s, c.problem)
		}
	}
}

// recording records the tokens that an agent verifies.
type recording struct {
	sealed.Callers
	asked chan string
}

func (r recording) VerifyToken(token string) (string, error) {
	r.asked <- token
	return r.Callers.VerifyToken(token)
}

// logged receives the messages of a log.
type logged chan string

func (l logged) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestSealing_LogsCallerProblems checks that a running forwarder logs what is wrong with its certificate
// once, when it begins, changes and ends.
func TestSealing_LogsCallerProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		owner, lines := sealtest.NewOwner(t, ownerAccount), make(logged, 100)
		rules := &fakeTrust{changed: make(chan struct{}, 1)}
		rules.current.Store(endpointtrust.Compile(nil, endpointtrust.Default{Mode: sealed.Require,
			Account: ownerAccount, Authorities: []*x509.Certificate{owner.Root}}, allListed))
		s := newSealing(RuleOptions{Trust: rules, Caller: callerIn(dir)}, slog.New(slog.NewTextHandler(lines, nil)),
			&broadcaster{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx, new(forward.Relay)) }()
		const refused = "agents that require proof of who calls refuse this one, or soon will"
		for _, step := range []struct {
			cert *tls.Certificate // cert is nil where nothing is written.
			wait time.Duration
			want string
		}{
			{nil, time.Minute, refused},
			{owner.Caller("cluster-1", 48*time.Hour), 20 * time.Second, "is good again"},
			{nil, 47 * time.Hour, "less than a third of the certificate's life is left"},
			{nil, 2 * time.Hour, "the certificate is in force from"},
			{owner.Caller("cluster-1", 200*time.Hour), 20 * time.Second, "is good again"},
		} {
			if step.cert != nil {
				sealtest.Write(t, dir, step.cert)
			}
			time.Sleep(step.wait)
			synctest.Wait()
			if len(lines) != 1 {
				t.Fatalf("%d lines, want %q", len(lines), step.want)
			}
			if line := <-lines; !strings.Contains(line, step.want) {
				t.Errorf("logged %q, want %q", line, step.want)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
