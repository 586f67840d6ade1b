// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// openSession opens a bare session of an agent, for binds one by one.
func openSession(r *servicetest.Server, token string) *tunnel.Session {
	r.T.Helper()
	c, _, _ := r.RunTunnelClient(tunnel.ClientConfig{Hello: func() tunnel.Hello {
		return tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClientVersion: "0.0.0-test", OS: "linux"}
	}})
	s, err := c.Wait(servicetest.Context(r.T))
	if err != nil {
		r.T.Fatal(err)
	}
	return s
}

// wantCode checks that err is a refusal with the code whose message has every text.
func wantCode(t *testing.T, what string, err error, code tunnel.Code, texts ...string) {
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

func TestHello_RefusedWithReason(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	st := r.OpenStore()
	accounts, err := st.ListAccounts(servicetest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	own := accounts[0].ID
	token := func(acl ...string) string {
		_, secret, err := st.IssueAuthtoken(servicetest.Context(t), own, "", acl)
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	f := r.StartForwarder() // registers r.operator
	if _, err := f.Wait(servicetest.Context(t)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		hello tunnel.Hello
		code  tunnel.Code
		text  string
	}{
		{"unknown token", tunnel.Hello{Role: tunnel.RoleAgent, Token: account.NewSecret(account.AuthtokenPrefix)},
			tunnel.CodeBadToken, "not known"},
		{"no token", tunnel.Hello{Role: tunnel.RoleAgent}, tunnel.CodeBadToken, "required"},
		{"an API key", tunnel.Hello{Role: tunnel.RoleAgent, Token: r.APIKey}, tunnel.CodeBadToken,
			"this is an API key"},
		{"agent without bind rule", tunnel.Hello{Role: tunnel.RoleAgent, Token: token("connect:*")},
			tunnel.CodeForbidden,
			"bind rule"},
		{"forwarder without connect rule", tunnel.Hello{Role: tunnel.RoleForwarder, Token: token("bind:*"),
			OperatorID: r.OperatorID}, tunnel.CodeForbidden, "connect rule"},
		{"forwarder of another operator",
			tunnel.Hello{Role: tunnel.RoleForwarder, Token: token("connect:" + account.NewID("op", time.Now())),
				OperatorID: r.OperatorID}, tunnel.CodeForbidden, r.OperatorID},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, ended := r.RunTunnelClient(tunnel.ClientConfig{Hello: func() tunnel.Hello { return c.hello }})
			wantCode(t, c.name, servicetest.Receive(t, ended, "refusal"), c.code, c.text)
		})
	}
	for name, operator := range map[string]string{"forwarder without operator": "",
		"forwarder of an unregistered operator": account.NewID("op", time.Now())} {
		t.Run(name, func(t *testing.T) {
			down := make(chan error, 16)
			r.RunTunnelClient(tunnel.ClientConfig{
				Hello: func() tunnel.Hello {
					return tunnel.Hello{Role: tunnel.RoleForwarder, Token: r.Authtoken, OperatorID: operator}
				},
				OnDown: func(err error, _ time.Duration) { down <- err },
			})
			code := tunnel.CodeInvalid
			if operator != "" {
				code = tunnel.CodeUnavailable // its manager registers again
			}
			wantCode(t, name, servicetest.Receive(t, down, "refusal"), code, "operator")
		})
	}
}

func TestBind_RefusedWithFieldValueAndRule(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	s := openSession(r, r.Authtoken)
	bind := func(b tunnel.Bind) error {
		_, err := s.Bind(servicetest.Context(t), b)
		return err
	}
	for raw, rule := range map[string]string{
		"a.b:8080": `did you mean "http://a.b:8080"?`, "tcp://a.b": "needs a port", "tcp://a.b:0": "port",
		"tcp://a.b:70000": "port",
		"http://a.b:080":  "port", "https://a.b": "scheme", "tls://a.b": "scheme", "ftp://a.b": "scheme",
		"http://a":     "hostname",
		"http://a.b.c": "hostname", "http://*.b": "hostname", "http://10.0": "hostname", "http://[::1]:80": "hostname",
		"http://a.b/path": "path", "http://a.b?q": "query", "http://u:pw@a.b": "user name", "http://a_b.c": "hostname",
		"http://ä.b": "ASCII",
	} {
		wantCode(t, raw, bind(tunnel.Bind{URL: raw}), tunnel.CodeInvalid, "url", rule)
	}
	ok := "http://a.b"
	for name, c := range map[string]struct {
		bind  tunnel.Bind
		texts []string
	}{
		"unknown binding": {tunnel.Bind{URL: ok, Binding: "cluster"}, []string{"binding", "cluster", "kubernetes"}},
		"public binding": {tunnel.Bind{URL: "https://app.example.com", Binding: "public"},
			[]string{"url", "app.example.com", "granted"}},
		"public host":      {tunnel.Bind{URL: "https://app", Binding: "public"}, []string{"hostname", "domain name"}},
		"internal binding": {tunnel.Bind{URL: ok, Binding: "internal"}, []string{"url", ".internal"}},
		// the session tells no instance id
		"nameless member": {tunnel.Bind{URL: ok, PoolingEnabled: true}, []string{"name", "instance id"}},
		"long description": {tunnel.Bind{URL: ok, Description: strings.Repeat("x", 300)},
			[]string{"description", "255"}},
		"long metadata": {tunnel.Bind{URL: ok, Metadata: strings.Repeat("x", 5000)}, []string{"metadata", "4096"}},
		"NUL":           {tunnel.Bind{URL: ok, Name: "a\x00b"}, []string{"name", "NUL"}},
		"protocol":      {tunnel.Bind{URL: ok, UpstreamProtocol: "http3"}, []string{"upstream_protocol", "http3"}},
		"tcp protocol": {tunnel.Bind{URL: "tcp://a.b:1", UpstreamProtocol: "http1"},
			[]string{"upstream_protocol", "tcp"}},
		"host mode":        {tunnel.Bind{URL: ok, HostMode: "not a host"}, []string{"host_mode", "not a host"}},
		"header injection": {tunnel.Bind{URL: ok, HostMode: "a\r\nX: y"}, []string{"host_mode"}},
		"upstream secrets": {tunnel.Bind{URL: ok, UpstreamURL: "http://me:hunter2@db"},
			[]string{"upstream_url: must be a URL without"}},
		"two at once": {tunnel.Bind{URL: "http://a", Binding: "public", Name: "a\x00b"}, []string{"hostname", "name"}},
	} {
		err := bind(c.bind)
		wantCode(t, name, err, tunnel.CodeInvalid, c.texts...)
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: the message repeats a password", name)
		}
	}
	for _, raw := range []string{"http://a.b", "http://A.B/", "http://a.b:80"} { // one and the same
		s := openSession(r, r.Authtoken)
		b, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: raw})
		if err != nil || b.URL != "http://a.b" {
			t.Errorf("%s: %+v %v", raw, b, err)
		}
		if err := s.Unbind(servicetest.Context(t), b.EndpointID); err != nil {
			t.Error(err)
		}
	}
}

func TestBind_FollowsAuthtokenACL(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	st := r.OpenStore()
	accounts, err := st.ListAccounts(servicetest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := st.IssueAuthtoken(servicetest.Context(t), accounts[0].ID, "", []string{"bind:http://*.demo"})
	if err != nil {
		t.Fatal(err)
	}
	s := openSession(r, secret)
	if _, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo"}); err != nil {
		t.Error(err)
	}
	_, err = s.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.prod"})
	wantCode(t, "another namespace", err, tunnel.CodeForbidden, "http://hello.prod")
}

func TestBind_TakenURLNamesItsHolder(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	first := openSession(r, r.Authtoken)
	if _, err := first.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo"}); err != nil {
		t.Fatal(err)
	}
	second := openSession(r, r.Authtoken)
	_, err := second.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo"})
	wantCode(t, "a second agent", err, tunnel.CodeURLTaken, first.ID(), "127.0.0.1", "since 20", "--pooling-enabled")
	_, err = second.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo", ResumeSecret: "guess"})
	wantCode(t, "a guessed resume secret", err, tunnel.CodeURLTaken)
	if first.Err() != nil {
		t.Errorf("the holder's session ended: %v", first.Err())
	}
}

func TestBind_ResumeReplacesOldSession(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	echo := func(name string) func(context.Context, *tunnel.Stream) {
		return func(_ context.Context, st *tunnel.Stream) {
			if _, err := http.ReadRequest(bufio.NewReader(st)); err == nil {
				_ = st.Accept()
				_, _ = fmt.Fprintf(st, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(name), name)
				_, _ = io.Copy(io.Discard, st)
			}
		}
	}
	old := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "http://hello.demo"}, echo("old"))
	first := servicetest.Receive(t, old.Bound, "bind")
	f := r.StartForwarder()
	tr := f.Transport(first)
	if got := servicetest.ReadAll(t, f.Do(tr, "GET", "http://hello.demo/", nil, nil).Body); got != "old" {
		t.Fatalf("answer %q", got)
	}
	oldSession, err := old.Wait(servicetest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	// The same process over a new session, while the service still believes in the old one.
	renewed := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "http://hello.demo", ResumeSecret: first.ResumeSecret},
		echo("new"))
	if b := servicetest.Receive(t, renewed.Bound, "take-over"); b.EndpointID != first.EndpointID ||
		b.ResumeSecret == first.ResumeSecret {
		t.Errorf("took over %+v, was %+v", b, first)
	}
	servicetest.Receive(t, oldSession.Done(), "end of the old session")
	if got := servicetest.ReadAll(t, f.Do(tr, "GET", "http://hello.demo/", nil, nil).Body); got != "new" {
		t.Errorf("after the take-over %q answered", got)
	}
}

func TestAuthtoken_RevocationEndsSessions(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	st := r.OpenStore()
	accounts, err := st.ListAccounts(servicetest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	token, secret, err := st.IssueAuthtoken(servicetest.Context(t), accounts[0].ID, "", []string{"bind:*", "connect:*"})
	if err != nil {
		t.Fatal(err)
	}
	upstream := servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	keeper := r.StartAgent(tunnel.Bind{URL: "tcp://kept.demo:1"}, upstream) // another token's
	kept := servicetest.Receive(t, keeper.Bound, "bind")
	a := r.StartAgentWith(secret, tunnel.Bind{URL: "tcp://gone.demo:1"}, nil)
	servicetest.Receive(t, a.Bound, "bind")
	r.StartForwarder()
	f := r.StartForwarderAs(secret, r.OperatorID)
	stream := f.Open(servicetest.OpenHeader(t, kept))
	_, _ = io.WriteString(stream, "x")
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := st.DeleteAuthtoken(servicetest.Context(t), account.Caller{AccountID: token.AccountID},
		token.ID); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	wantCode(t, "agent", servicetest.Receive(t, a.Ended, "end of the agent"), tunnel.CodeTokenRevoked, "deleted")
	wantCode(t, "forwarder", servicetest.Receive(t, f.Ended, "end of the forwarder"), tunnel.CodeTokenRevoked,
		"deleted")
	if _, err := stream.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the forwarder's open stream read %v", err)
	}
	took := time.Since(deleted)
	t.Logf("revoked sessions ended after %v", took)
	// a second, and patience with a busy machine; the intervals' own test is in
	// internal/service/tunnelserver
	if took > 5*time.Second {
		t.Errorf("revoked sessions lived on for %v", took)
	}
	if s := keeper.Session(); s == nil {
		t.Error("another token's session ended, too")
	}
}

func TestOperator_DeletionEndsForwarders(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	s, err := f.Wait(servicetest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if status := r.CallAPI("DELETE", "/kubernetes_operators/"+r.OperatorID, nil, nil); status != http.StatusNoContent {
		t.Fatalf("deleting the operator: %d", status)
	}
	servicetest.Receive(t, s.Done(), "end of the forwarder's session")
	wantCode(t, "forwarder", s.Err(), tunnel.CodeUnavailable, "not registered")
}

func TestEdge_RefusesMismatchedStreams(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(http.ResponseWriter, *http.Request) { t.Error("a request came through") })
	right := servicetest.OpenHeader(t, p.Bound)
	for name, c := range map[string]struct {
		change func(*tunnel.OpenHeader)
		want   tunnel.RefuseCode
	}{
		"another host": {func(h *tunnel.OpenHeader) { h.Host = "other.demo" }, tunnel.RefusedMismatch},
		"another port": {func(h *tunnel.OpenHeader) { h.Port = 8080 }, tunnel.RefusedMismatch},
		"unknown id": {func(h *tunnel.OpenHeader) {
			h.EndpointID = account.NewID("ep", time.Now())
		}, tunnel.RefusedUnknownEndpoint},
		"id that is none": {func(h *tunnel.OpenHeader) { h.EndpointID = "' OR 1=1 --" }, tunnel.RefusedUnknownEndpoint},
	} {
		h := right
		c.change(&h)
		if got := p.Forwarder.OpenRefused(h); got != c.want {
			t.Errorf("%s: refused with %v, want %v", name, got, c.want)
		}
	}
	p.Agent.Stop() // the same holds for an endpoint that only the store knows
	h := right
	h.Port = 8080
	if got := p.Forwarder.OpenRefused(h); got != tunnel.RefusedMismatch {
		t.Errorf("offline, another port: %v", got)
	}
}

func TestEdge_HidesOtherAccountsEndpoints(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(http.ResponseWriter, *http.Request) { t.Error("a request came through") })
	st := p.OpenStore()
	other, err := st.CreateAccount(servicetest.Context(t), "other")
	if err != nil {
		t.Fatal(err)
	}
	_, otherToken, err := st.IssueAuthtoken(servicetest.Context(t), other.ID, "", []string{"bind:*", "connect:*"})
	if err != nil {
		t.Fatal(err)
	}
	op, _, err := st.UpsertOperator(servicetest.Context(t), account.Operator{AccountID: other.ID, Description: "other"})
	if err != nil {
		t.Fatal(err)
	}
	f := p.StartForwarderAs(otherToken, op.ID)
	if got := f.OpenRefused(servicetest.OpenHeader(t, p.Bound)); got != tunnel.RefusedUnknownEndpoint {
		t.Errorf("another account's live endpoint: %v", got)
	}
	// The same URL is free there, and the two do not meet.
	s := openSession(p.Server, otherToken)
	b, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: p.Bound.URL})
	if err != nil || b.EndpointID == p.Bound.EndpointID {
		t.Errorf("the same URL in another account: %+v %v", b, err)
	}
	wantCode(t, "unbinding another account's endpoint", s.Unbind(servicetest.Context(t), p.Bound.EndpointID),
		tunnel.CodeInvalid,
		"does not hold")
	down := make(chan error, 16)
	p.RunTunnelClient(tunnel.ClientConfig{ // an operator of another account
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleForwarder, Token: otherToken, OperatorID: p.OperatorID}
		},
		OnDown: func(err error, _ time.Duration) { down <- err },
	})
	wantCode(t, "another account's operator", servicetest.Receive(t, down, "refusal"), tunnel.CodeUnavailable,
		"not registered")
}

// binds are; internal/service/tunnelserver has the test, with a clock of its own
func TestBind_ResumesAreNotLimited(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	s := openSession(r, r.Authtoken)
	b, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo"})
	for range 50 {
		if err != nil {
			t.Fatal(err)
		}
		b, err = s.Bind(servicetest.Context(t), tunnel.Bind{URL: b.URL, ResumeSecret: b.ResumeSecret})
	}
}
