// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/frozen"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// holdRequest answers with a description of the request, but holds a request of /held: it closes held
// when it has read it, and waits for the client's end.
func holdRequest(held chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			_, _ = io.Copy(io.Discard, r.Body) // else its context does not end with the connection
			close(held)
			<-r.Context().Done()
		}
		servicetest.DescribeRequest(w, r)
	}
}

// TestReplicas_FrozenAgentIsNoticedThroughAnother freezes an agent, as SIGSTOP does, whose streams
// are relayed and open already. What is served through the other replica is as with one server:
// requests that may be repeated end with a code of their own, and wait for an agent that goes on;
// others wait longer.
func TestReplicas_FrozenAgentIsNoticedThroughAnother(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(), g.start()
	awaitPeers(1, one, two)
	held := make(chan struct{})
	upstream := servicetest.ServeHTTP(t, holdRequest(held))
	var process frozen.Process
	agent := one.StartAgentWith(one.Authtoken, tunnel.Bind{URL: "http://hello.demo", UpstreamProtocol: "http1"},
		servicetest.RelayTo(upstream), func(c *tunnel.ClientConfig) { c.DialContext = process.Dial })
	t.Cleanup(process.Continue)
	bound := servicetest.Receive(t, agent.Bound, "bind")
	f := two.StartForwarder()
	tr := f.Transport(bound)
	get := func() (*http.Response, time.Duration) {
		began := time.Now()
		res := f.Do(tr, http.MethodGet, "http://hello.demo/x", nil, nil)
		_ = servicetest.ReadAll(t, res.Body) // so that streams are kept
		return res, time.Since(began)
	}
	requireServed := func(when string) {
		t.Helper()
		if res, took := get(); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d after %v", when, res.StatusCode, took)
		}
	}
	requireServed("before")
	posted := make(chan string, 1)
	post := func(path string) {
		res := f.Do(tr, http.MethodPost, "http://hello.demo"+path, strings.NewReader("body"), nil)
		posted <- servicetest.ReadAll(t, res.Body)
	}
	process.Stop()
	go post("/x")
	goesOn := time.AfterFunc(2*time.Second, process.Continue)
	defer goesOn.Stop()
	requireServed("from an agent that goes on after 2 s")
	if got := servicetest.Receive(t, posted, "answer to a POST"); !strings.HasPrefix(got, "hello.demo/x|") {
		t.Errorf("POST: %q", got)
	}
	requireServed("again")
	go post("/held")
	servicetest.Receive(t, held, "POST at the upstream")
	process.Stop()
	for _, most := range []time.Duration{12 * time.Second, 6 * time.Second} { // the second time it is known
		res, took := get()
		code := res.Header.Get(account.CodeHeader)
		if res.StatusCode != http.StatusGatewayTimeout || code != string(account.CodeAgentSilent) || took > most {
			t.Errorf("from a frozen agent: %d %s after %v", res.StatusCode, code, took)
		}
		t.Logf("a frozen agent was given up after %v", took)
	}
	if page := servicetest.Receive(t, posted, "answer to a POST"); !strings.Contains(page, "may have been executed") {
		t.Errorf("POST: %q", page)
	}
}
