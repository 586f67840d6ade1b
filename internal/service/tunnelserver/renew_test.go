// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// checkedTokens is a store that knows what tokens of ServiceAccounts are good for, as the assembly
// checks them: by their text.
type checkedTokens struct {
	*store.Store
	credentials map[string]*account.TunnelCredential
}

func (s *checkedTokens) TunnelCredential(ctx context.Context, secret string) (*account.TunnelCredential, error) {
	if c := s.credentials[secret]; c != nil {
		copied := *c
		return &copied, nil
	}
	return s.Store.TunnelCredential(ctx, secret)
}

// newTokenService is a service with tokens of a cluster's exporter that end after "short": nearly
// 3 s, "long": an hour, and of other subjects.
func newTokenService(t *testing.T) *testService {
	t.Helper()
	l := newTestService(t, "bind:*")
	l.trustCluster(l)
	return l
}

// trustCluster makes the servers, which have one store, accept tokens of a cluster.
func (l *testService) trustCluster(servers ...*testService) {
	t := l.t
	t.Helper()
	c, err := l.store.CreateCluster(t.Context(), account.Caller{AccountID: l.accountID},
		storetest.ClusterPatch(t, "prod", "k-1"))
	storetest.Must(t, err)
	for _, s := range c.Subjects {
		c, err = l.store.PinServiceAccount(t.Context(), l.accountID, s.ID, "u")
		storetest.Must(t, err)
	}
	storetest.Must(t, l.store.PinCluster(t.Context(), l.accountID, c.Subjects[2].ID, "uid-1"))
	c, err = l.store.Cluster(t.Context(), l.accountID, c.ID)
	storetest.Must(t, err)
	credentials := map[string]*account.TunnelCredential{}
	add := func(name string, subject int, ends time.Duration) {
		token := account.ServiceAccountToken{KeyID: "k-1", UID: "u",
			Expires: time.Now().Add(ends - account.TokenGrace).Unix()}
		credentials[name], err = c.TunnelCredential(&c.Subjects[subject], token)
		storetest.Must(t, err)
	}
	add("short", 2, 3*time.Second)
	add("long", 2, time.Hour)
	add("forwarder", 1, time.Hour)
	for _, s := range servers {
		checked := &checkedTokens{Store: s.store, credentials: credentials}
		s.authenticator.store, s.rights.store = checked, checked
	}
}

// exporterOf connects an exporter with the token.
func (l *testService) exporterOf(token string) *agent {
	l.t.Helper()
	return l.agentWith(tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClusterUID: "uid-1"})
}

// renew presents a token for the agent's session.
func (l *testService) renew(a *agent, token string) (time.Time, error) {
	l.t.Helper()
	wait.Until(l.t, "the session to be up", func() bool {
		l.registry.mu.Lock()
		defer l.registry.mu.Unlock()
		return l.sessions[a.ID()] != nil && l.sessions[a.ID()].tun != nil
	})
	return l.Renew(l.t.Context(), l.session(a.ID()).tun, token)
}

// TestRenew_KeepsSession holds that a session ends with its token's grace, and one whose token was
// renewed does not, although an older token was presented after that.
func TestRenew_KeepsSession(t *testing.T) {
	t.Parallel()
	l := newTokenService(t)
	renewed, forgotten, plain := l.exporterOf("short"), l.exporterOf("short"), l.agent()
	for _, token := range []string{"long", "short"} {
		until, err := l.renew(renewed, token)
		storetest.Must(t, err)
		if left := time.Until(until) + account.TokenGrace; left < 59*time.Minute {
			t.Errorf("renewed with %s: until %s", token, until)
		}
	}
	_, err := l.renew(forgotten, "unknown")
	mustRefuse(t, "a token that is not valid", err, tunnel.CodeBadToken)
	_, err = l.renew(plain, "long")
	mustRefuse(t, "an authtoken's session", err, tunnel.CodeInvalid, "nothing to renew")
	wait.Receive(t, "the end of the session", forgotten.Done())
	mustRefuse(t, "not renewed", forgotten.Err(), tunnel.CodeUnavailable, "was not renewed")
	for _, s := range []*agent{renewed, plain} {
		if err := s.Err(); err != nil {
			t.Errorf("another session ended, too: %v", err)
		}
	}
}

func TestRenew_EndsSessionOfAnotherSubject(t *testing.T) {
	t.Parallel()
	l := newTokenService(t)
	a, other := l.exporterOf("long"), l.exporterOf("long")
	_, err := l.renew(a, "forwarder")
	mustRefuse(t, "another subject", err, tunnel.CodeForbidden, "the session began with a token of subject cs-")
	wait.Receive(t, "the end of the session", a.Done())
	mustRefuse(t, "the session", a.Err(), tunnel.CodeForbidden)
	_, err = l.renew(other, l.token)
	mustRefuse(t, "an authtoken", err, tunnel.CodeForbidden)
	wait.Receive(t, "the end of the session", other.Done())
}

// TestRenew_SurvivesRulesChange holds that new rules of a subject do not take back a renewal.
func TestRenew_SurvivesRulesChange(t *testing.T) {
	t.Parallel()
	l := newTokenService(t)
	a := l.exporterOf("short")
	_, err := l.renew(a, "long")
	storetest.Must(t, err)
	c, _, err := l.store.ListClusters(t.Context(), l.accountID, account.Page{})
	storetest.Must(t, err)
	_, err = l.store.PatchCluster(t.Context(), account.Caller{AccountID: l.accountID}, c[0].ID,
		account.ClusterPatch{Subjects: &[]account.SubjectPatch{{Namespace: "fairlead", ServiceAccount: "exporter",
			Role: account.RoleExporter, ACL: &[]string{"export:*", "bind:*", "backend:*"}}}})
	storetest.Must(t, err)
	wait.Until(t, "the new rules", func() bool { return len(l.tokenOf(l.session(a.ID())).ACL) == 3 })
	if ends := l.tokenOf(l.session(a.ID())).ServiceAccount.Ends(); time.Until(ends) < 59*time.Minute {
		t.Errorf("the session ends at %s", ends)
	}
}

// TestJoin_TakesTokenOfSameSubject holds that another token of a session's ServiceAccount joins it on
// another server, and no other credential of the account does.
func TestJoin_TakesTokenOfSameSubject(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	r.servers[0].trustCluster(r.servers...)
	a := r.servers[0].exporterOf("long")
	wait.Until(t, "the session to be stored", func() bool { return r.servers[0].storedSession(a.ID()) != nil })
	join := func(token string) error {
		_, err := r.servers[1].Join(t.Context(), tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClusterUID: "uid-1",
			SessionID: a.ID(), JoinSecret: a.Welcome().JoinSecret}, nil)
		return err
	}
	for _, token := range []string{"forwarder", r.token, ""} {
		mustRefuse(t, "the token "+token, join(token), tunnel.CodeForbidden, "is that of another ServiceAccount")
	}
	storetest.Must(t, join("short"))
	s := r.servers[1]
	if got := s.tokenOf(s.session(a.ID())).ServiceAccount; time.Until(got.Ends()) > 4*time.Second {
		t.Errorf("the leg has the token %+v, not its own", got)
	}
}
