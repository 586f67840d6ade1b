// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// refusedBinds are binds to a session without an instance id, with texts of the refusal.
var refusedBinds = map[string]struct {
	bind  tunnel.Bind
	texts []string
}{
	"unknown binding": {tunnel.Bind{URL: "http://a.b", Binding: "cluster"},
		[]string{"binding", "cluster", "kubernetes"}},
	"public binding": {tunnel.Bind{URL: "https://app.example.com", Binding: "public"},
		[]string{"url", "app.example.com", "granted"}},
	"public host":      {tunnel.Bind{URL: "https://app", Binding: "public"}, []string{"hostname", "domain name"}},
	"internal binding": {tunnel.Bind{URL: "http://a.b", Binding: "internal"}, []string{"url", ".internal"}},
	"unnamed member":   {tunnel.Bind{URL: "http://a.b", PoolingEnabled: true}, []string{"name", "instance id"}},
	"long description": {tunnel.Bind{URL: "http://a.b", Description: strings.Repeat("x", 300)},
		[]string{"description", "255"}},
	"long metadata": {tunnel.Bind{URL: "http://a.b", Metadata: strings.Repeat("x", 5000)},
		[]string{"metadata", "4096"}},
	"NUL": {tunnel.Bind{URL: "http://a.b", Name: "a\x00b"}, []string{"name", "NUL"}},
	"protocol": {tunnel.Bind{URL: "http://a.b", UpstreamProtocol: "http3"},
		[]string{"upstream_protocol", "http3"}},
	"tcp protocol": {tunnel.Bind{URL: "tcp://a.b:1", UpstreamProtocol: "http1"},
		[]string{"upstream_protocol", "tcp"}},
	"host mode":        {tunnel.Bind{URL: "http://a.b", HostMode: "not a host"}, []string{"host_mode", "not a host"}},
	"header injection": {tunnel.Bind{URL: "http://a.b", HostMode: "a\r\nX: y"}, []string{"host_mode"}},
	"upstream secrets": {tunnel.Bind{URL: "http://a.b", UpstreamURL: "http://me:hunter2@db"},
		[]string{"upstream_url: must be a URL without"}},
	"two at once": {tunnel.Bind{URL: "http://a", Binding: "public", Name: "a\x00b"}, []string{"hostname", "name"}},
}

func TestBind_RefusedWithFieldValueAndRule(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	s := openSession(r, r.Authtoken)
	for name, c := range refusedBinds {
		_, err := s.Bind(servicetest.Context(t), c.bind)
		wantCode(t, name, err, tunnel.CodeInvalid, c.texts...)
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: the message repeats a password", name)
		}
	}
}

func TestBind_RefusesInvalidURL(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	s := openSession(r, r.Authtoken)
	for raw, rule := range map[string]string{
		"a.b:8080": `did you mean "http://a.b:8080"?`, "tcp://a.b": "needs a port", "tcp://a.b:0": "port",
		"tcp://a.b:70000": "port",
		"http://a.b:080":  "port", "https://a.b": "scheme", "tls://a.b": "scheme", "ftp://a.b": "scheme",
		"http://a":     "hostname",
		"http://a.b.c": "hostname", "http://*.b": "hostname", "http://10.0": "hostname", "http://[::1]:80": "hostname",
		"http://a.b/path": "path", "http://a.b?q": "query", "http://u:pw@a.b": "user name", "http://a_b.c": "hostname",
		"http://ä.b": "ASCII",
	} {
		_, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: raw})
		wantCode(t, raw, err, tunnel.CodeInvalid, "url", rule)
	}
}

func TestBind_NormalisesURL(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	s := openSession(r, r.Authtoken)
	for _, raw := range []string{"http://a.b", "http://A.B/", "http://a.b:80"} {
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
	s := openSession(r, *r.CreateAuthtoken("bind:http://*.demo").Token)
	if _, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo"}); err != nil {
		t.Error(err)
	}
	_, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.prod"})
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

func TestBind_KeepsAccountsApart(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	own, err := openSession(r, r.Authtoken).Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo"})
	must.Succeed(t, err)
	s := openSession(r, r.CreateAccount().Authtoken)
	b, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: own.URL})
	if err != nil || b.EndpointID == own.EndpointID {
		t.Errorf("the same URL in another account: %+v %v", b, err)
	}
	wantCode(t, "unbinding another account's endpoint", s.Unbind(servicetest.Context(t), own.EndpointID),
		tunnel.CodeInvalid, "does not hold")
}

func TestBind_ResumeReplacesOldSession(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	answer := func(name string) func(context.Context, *tunnel.Stream) {
		return func(_ context.Context, st *tunnel.Stream) {
			if _, err := http.ReadRequest(bufio.NewReader(st)); err == nil {
				_ = st.Accept()
				_, _ = fmt.Fprintf(st, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(name), name)
				_, _ = io.Copy(io.Discard, st)
			}
		}
	}
	old := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "http://hello.demo"}, answer("old"))
	first := servicetest.Receive(t, old.Bound, "bind")
	f := r.StartForwarder()
	tr := f.Transport(first)
	if got := servicetest.ReadAll(t, f.Do(tr, "GET", "http://hello.demo/", nil, nil).Body); got != "old" {
		t.Fatalf("answer %q", got)
	}
	oldSession, err := old.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	// The same process over a new session, while the service has not noticed the end of the old
	// one.
	renewed := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "http://hello.demo", ResumeSecret: first.ResumeSecret},
		answer("new"))
	if b := servicetest.Receive(t, renewed.Bound, "take-over"); b.EndpointID != first.EndpointID ||
		b.ResumeSecret == first.ResumeSecret {
		t.Errorf("took over %+v, was %+v", b, first)
	}
	servicetest.Receive(t, oldSession.Done(), "end of the old session")
	if got := servicetest.ReadAll(t, f.Do(tr, "GET", "http://hello.demo/", nil, nil).Body); got != "new" {
		t.Errorf("after the take-over %q answered", got)
	}
}

// TestBind_ResumesAreNotLimited resumes more often than a session may bind; the limit of binds is
// tested in internal/service/tunnelserver.
func TestBind_ResumesAreNotLimited(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	s := openSession(r, r.Authtoken)
	b, err := s.Bind(servicetest.Context(t), tunnel.Bind{URL: "http://hello.demo"})
	for range 50 {
		must.Succeed(t, err)
		b, err = s.Bind(servicetest.Context(t), tunnel.Bind{URL: b.URL, ResumeSecret: b.ResumeSecret})
	}
}
