// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// openSession opens a bare session of an agent, for binds one by one.
func openSession(r *servicetest.Server, token string) *tunnel.Session {
	r.T.Helper()
	c, _, _ := r.RunTunnelClient(tunnel.ClientConfig{Hello: func() tunnel.Hello {
		return tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClientVersion: "0.0.0-test", OS: "linux"}
	}})
	s, err := c.Wait(servicetest.Context(r.T))
	must.Succeed(r.T, err)
	return s
}

// wantCode checks that err is a refusal with the code whose message has every text.
func wantCode(t testing.TB, what string, err error, code tunnel.Code, texts ...string) {
	t.Helper()
	var e *tunnel.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(e.Msg, text) {
			t.Errorf("%s: message %q lacks %q", what, e.Msg, text)
		}
	}
}

// refusedHello is a hello that ends its client, with the code and a text of the refusal.
type refusedHello struct {
	name  string
	hello tunnel.Hello
	code  tunnel.Code
	text  string
}

// refusedHellos returns hellos to a service with a registered operator.
func refusedHellos(r *servicetest.Server) []refusedHello {
	r.T.Helper()
	agent := func(token string) tunnel.Hello { return tunnel.Hello{Role: tunnel.RoleAgent, Token: token} }
	forwarder := func(rule string) tunnel.Hello {
		return tunnel.Hello{Role: tunnel.RoleForwarder, Token: *r.CreateAuthtoken(rule).Token, OperatorID: r.OperatorID}
	}
	return []refusedHello{
		{"unknown token", agent(account.NewSecret(account.AuthtokenPrefix)), tunnel.CodeBadToken, "not known"},
		{"no token", agent(""), tunnel.CodeBadToken, "required"},
		{"API key of another scope", agent(r.APIKey), tunnel.CodeForbidden, "with the scope admin"},
		{"agent without bind rule", agent(*r.CreateAuthtoken("connect:*").Token), tunnel.CodeForbidden, "bind rule"},
		{"forwarder without connect rule", forwarder("bind:*"), tunnel.CodeForbidden, "connect rule"},
		{"forwarder with the first authtoken", tunnel.Hello{Role: tunnel.RoleForwarder, Token: r.Authtoken,
			OperatorID: r.OperatorID}, tunnel.CodeForbidden, "connect rule"},
		{"forwarder of another operator", forwarder("connect:" + account.NewID("op", time.Now())),
			tunnel.CodeForbidden, r.OperatorID},
	}
}

func TestHello_RefusedWithReason(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	r.RegisterOperator()
	for _, c := range refusedHellos(r) {
		t.Run(c.name, func(t *testing.T) {
			_, _, ended := r.RunTunnelClient(tunnel.ClientConfig{Hello: func() tunnel.Hello { return c.hello }})
			wantCode(t, c.name, servicetest.Receive(t, ended, "refusal"), c.code, c.text)
		})
	}
}

// TestHello_RefusesForwarderWithoutItsOperator checks the code: with CodeUnavailable a forwarder
// tries again, because its manager registers the operator again.
func TestHello_RefusesForwarderWithoutItsOperator(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	r.RegisterOperator()
	token := *r.CreateAuthtoken("connect:*").Token
	for name, c := range map[string]struct {
		token, operator string
		code            tunnel.Code
		text            string
	}{
		"no operator":           {token, "", tunnel.CodeInvalid, "operator"},
		"unregistered operator": {token, account.NewID("op", time.Now()), tunnel.CodeUnavailable, "operator"},
		"another account's operator": {r.CreateAccount().Authtoken, r.OperatorID, tunnel.CodeUnavailable,
			"not registered"},
	} {
		t.Run(name, func(t *testing.T) {
			down := make(chan error, 16)
			r.RunTunnelClient(tunnel.ClientConfig{
				Hello: func() tunnel.Hello {
					return tunnel.Hello{Role: tunnel.RoleForwarder, Token: c.token, OperatorID: c.operator}
				},
				OnDown: func(err error, _ time.Duration) { down <- err },
			})
			wantCode(t, name, servicetest.Receive(t, down, "refusal"), c.code, c.text)
		})
	}
}

func TestOperator_DeletionEndsForwarders(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	s, err := f.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	r.RequireStatus("DELETE", "/kubernetes_operators/"+r.OperatorID, nil, http.StatusNoContent)
	servicetest.Receive(t, s.Done(), "end of the forwarder's session")
	wantCode(t, "forwarder", s.Err(), tunnel.CodeUnavailable, "not registered")
}
