// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// connect returns the session that a hello gives, nil for one that is refused.
func (s *stolen) connect(h tunnel.Hello) *tunnel.Session {
	s.T.Helper()
	refused, up := make(chan struct{}, 1), make(chan *tunnel.Session, 1)
	_, _, ended := s.RunTunnelClient(tunnel.ClientConfig{Connections: 1, Hello: func() tunnel.Hello { return h },
		OnUp: func(_ context.Context, session *tunnel.Session) error {
			up <- session
			return nil
		},
		OnDown: func(error, time.Duration) {
			select {
			case refused <- struct{}{}:
			default:
			}
		}})
	select {
	case session := <-up:
		return session
	case <-refused:
	case <-ended:
	case <-time.After(time.Minute):
		s.T.Error("a hello was not answered")
	}
	return nil
}

// tried returns what the page says of an attempt: "yes" or "no".
func tried(worked bool) string {
	if worked {
		return "yes"
	}
	return "no"
}

// binds tries to bind a URL as an agent of the cluster.
func (s *stolen) binds(token, cluster string, b tunnel.Bind) string {
	s.T.Helper()
	session := s.connect(tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClusterUID: cluster,
		ClientVersion: "0.0.0-test", OS: "linux"})
	if session == nil {
		return "no"
	}
	_, err := session.Bind(servicetest.Context(s.T), b)
	var refused *tunnel.Error
	if err != nil && !errors.As(err, &refused) {
		s.T.Error(err)
	}
	return tried(err == nil)
}

// opens tries to open a stream to the endpoint as a forwarder of the operator.
func (s *stolen) opens(token string, to tunnel.Bound) string {
	s.T.Helper()
	return s.opensAs(tunnel.Hello{Role: tunnel.RoleForwarder, Token: token, OperatorID: s.operatorID},
		servicetest.OpenHeader(s.T, to))
}

// What a client of fairlead connect claims about itself.
const claimedAddr, claimedPod = "10.9.9.9:1", "trusted"

// calls tries to open a stream to the URL as `fairlead connect` does, with what a thief may claim.
func (s *stolen) calls(token string, url account.EndpointURL) string {
	s.T.Helper()
	return s.opensAs(tunnel.Hello{Role: tunnel.RoleForwarder, Token: token, URLs: []string{url.String()}},
		tunnel.OpenHeader{Scheme: url.Scheme, Host: url.Host, Port: url.Port, ClientAddr: claimedAddr,
			Pod: &tunnel.PodIdentity{Namespace: "team-a", Name: claimedPod}})
}

// opensAs tries to open a stream with the header as the client of the hello.
func (s *stolen) opensAs(hello tunnel.Hello, h tunnel.OpenHeader) string {
	s.T.Helper()
	session := s.connect(hello)
	if session == nil {
		return "no"
	}
	st, err := session.Open(servicetest.Context(s.T), h)
	must.Succeed(s.T, err)
	defer func() { _ = st.Close() }()
	err = st.WaitOpened(servicetest.Context(s.T))
	var refused *tunnel.RefusedError
	if err != nil && !errors.As(err, &refused) {
		s.T.Error(err)
	}
	return tried(err == nil)
}

// TestSecurity_PageHasTunnels opens tunnels and streams with stolen credentials, and compares with
// docs/secure/credentials.md.
func TestSecurity_PageHasTunnels(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]bool{"secrets": false, "tokens of ServiceAccounts": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			startStolen(t, tokens).checkTunnels()
		})
	}
}

// attempts are what the rows of the page say, by their first cell. They return "yes" or "no".
func (s *stolen) attempts() map[string]func(token string) string {
	t := s.T
	t.Helper()
	echo := servicetest.ServeTCP(t, servicetest.Echo)
	private := s.bindPrivate(echo)
	other := s.CreateAccount()
	foreign := servicetest.Receive(t, s.StartAgentWith(other.Authtoken, tunnel.Bind{URL: "tcp://private.demo:1"},
		servicetest.RelayTo(echo)).Bound, "bind")
	theirs := servicetest.Receive(t, s.StartAgentWith(other.Authtoken, tunnel.Bind{URL: "tcp://theirs.demo:1"},
		servicetest.RelayTo(echo)).Bound, "bind")
	othersOperator := s.make(other.APIKey, "/kubernetes_operators", newOperator)
	owner := &tunnel.Owner{Kind: account.KindAgentEndpoint, Namespace: "team-a", Name: "web", UID: "u"}
	admitted, elsewhere := tunnel.Bind{URL: "tcp://x.team-a:1", Owner: owner}, *owner
	elsewhere.Namespace = "team-b"
	forwarder := func(token, operator string) string {
		return tried(s.connect(tunnel.Hello{Role: tunnel.RoleForwarder, Token: token, OperatorID: operator}) != nil)
	}
	return map[string]func(token string) string{
		"agent: bind a URL and an object that rules admit": func(token string) string {
			return s.binds(token, "one", admitted)
		},
		"agent: bind a URL beyond the rules": func(token string) string {
			return s.binds(token, "one", tunnel.Bind{URL: "tcp://x.team-b:1", Owner: owner})
		},
		"agent: bind for an object beyond the rules": func(token string) string {
			return s.binds(token, "one", tunnel.Bind{URL: "tcp://y.team-a:1", Owner: &elsewhere})
		},
		"agent: bind without an object": func(token string) string {
			return s.binds(token, "one", tunnel.Bind{URL: "tcp://z.team-a:1"})
		},
		"agent of another cluster": func(token string) string { return s.binds(token, "two", admitted) },
		"forwarder of the operator": func(token string) string {
			return forwarder(token, s.operatorID)
		},
		"forwarder of another operator of the account": func(token string) string {
			return forwarder(token, s.ids["/kubernetes_operators"])
		},
		"forwarder of another account's operator": func(token string) string {
			return forwarder(token, othersOperator)
		},
		"stream to any kubernetes endpoint of the account, whatever the operator selects": func(token string) string {
			return s.opens(token, private)
		},
		"stream to an endpoint of another account": func(token string) string { return s.opens(token, foreign) },
		"fairlead connect, to a kubernetes endpoint of the account by its URL, without an operator": func(
			token string,
		) string {
			return s.calls(token, mustParse(t, private.URL))
		},
		"fairlead connect, to an endpoint of another account": func(token string) string {
			return s.calls(token, mustParse(t, theirs.URL))
		},
	}
}

// bindPrivate binds an endpoint of the account, whose agent is told no caller that a thief claims.
func (s *stolen) bindPrivate(echo string) tunnel.Bound {
	s.T.Helper()
	agent := s.StartAgentWith(s.Authtoken, tunnel.Bind{URL: "tcp://private.demo:1"}, func(ctx context.Context,
		st *tunnel.Stream,
	) {
		if h := st.Header(); h.ClientAddr == claimedAddr || h.Pod != nil && h.Pod.Name == claimedPod {
			s.T.Errorf("what fairlead connect claims is believed: %+v", h)
		}
		servicetest.RelayTo(echo)(ctx, st)
	})
	return servicetest.Receive(s.T, agent.Bound, "bind")
}

func mustParse(t testing.TB, url string) account.EndpointURL {
	t.Helper()
	u, err := account.ParseEndpointURL(url)
	must.Succeed(t, err)
	return u
}

func (s *stolen) checkTunnels() {
	t := s.T
	t.Helper()
	table, attempts := securityTable(t, "Tunnels with a stolen credential"), s.attempts()
	// The operator selects nothing: that is no limit of its forwarders.
	if status, text := s.callAs(s.keys["API key operator"], "PATCH", "/kubernetes_operators/"+s.operatorID,
		`{"binding":{"endpoint_selectors":["false"]}}`); status != 200 {
		t.Fatal(status, text)
	}
	for what, attempt := range attempts {
		for column, token := range s.keys {
			if got, want := attempt(token), table[what][column]; got != want {
				t.Errorf("%s with %s: %s, and docs/secure/credentials.md says %q", what, column, got, want)
			}
		}
	}
	for what := range table {
		if attempts[what] == nil {
			t.Errorf("docs/secure/credentials.md has %q, which is not tried", what)
		}
	}
}
