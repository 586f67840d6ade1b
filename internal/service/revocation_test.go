// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestRevocation_CutsEveryKindOfRequest revokes one of two users with the same requests, over
// HTTP/2 on the same connection. All requests of that user end, and none of the other's.
func TestRevocation_CutsEveryKindOfRequest(t *testing.T) {
	t.Parallel()
	c := startSessionLoad(t)
	api := c.adminClient()
	c.startForwardChain("https://chain.example.com")
	kinds := kinds
	for _, base := range []string{loadURL, "https://chain.example.com"} {
		if base != loadURL {
			kinds = []string{"events http1", "events http2", "download http1", "upload http2"}
		}
		for _, kind := range kinds {
			c.revokeOne(t, api, kind, base)
		}
	}
}

// revokeOne opens a request of the kind for two users, revokes one and checks both requests.
func (c *sessionLoad) revokeOne(t testing.TB, api func(method, path string) (int, error), kind, base string) {
	t.Helper()
	shared := c.http2()
	what := kind + " at " + base
	victim := c.open(kind, c.addSession("victim of "+what, base), shared)
	other := c.open(kind, c.addSession("other of "+what, base), shared)
	for _, o := range []*openRequest{victim, other} {
		if strings.HasPrefix(kind, "download") || strings.HasPrefix(kind, "stalled") {
			o.waitStalled(t)
		}
	}
	if status, err := api("DELETE", "/app/users/"+victim.as.user); err != nil || status != http.StatusNoContent {
		t.Fatalf("DELETE: %d, %v", status, err)
	}
	if status := c.status(victim.as); status != http.StatusUnauthorized {
		t.Errorf("%s: the next request: %d", what, status)
	}
	if strings.HasPrefix(kind, "stalled") {
		close(victim.more) // the upstream gets the abort when it reads
	}
	servicetest.Receive(t, victim.ended, "abort at the upstream of "+what)
	if !strings.HasPrefix(kind, "stalled") {
		close(victim.more)
	}
	if victim.whole.Load() {
		t.Errorf("%s: the upstream received an aborted upload as a complete one", what)
	}
	victim.read()
	if e := servicetest.Receive(t, victim.over, "end of "+what); e.err == nil || strings.Contains(e.got, after) {
		t.Errorf("the victim of %s gets %q, %v", what, tail(e.got), e.err)
	}
	close(other.more)
	other.read()
	c.checkCompleted(t, other)
}

// checkCompleted checks that an uncut request ends with all that the upstream has sent, or with the
// upstream having received all of it.
func (c *sessionLoad) checkCompleted(t testing.TB, o *openRequest) {
	t.Helper()
	e := servicetest.Receive(t, o.over, "end of an uncut "+o.kind)
	want := before + after
	kind, _, _ := strings.Cut(o.kind, " ")
	switch kind {
	case "upload":
		want = strconv.Itoa(len(before))
	case "stalled":
		want = strconv.FormatInt(o.sent.Load(), 10)
	case "download":
		want = strings.Repeat(string(downloaded), int(o.moved.Load())/len(downloaded))
	}
	if e.err != nil || e.got != want {
		t.Errorf("uncut %s: %d bytes, ending in %q, and %v; want %d", o.kind, len(e.got), tail(e.got), e.err,
			len(want))
	}
}

func tail(s string) string { return s[max(0, len(s)-40):] }

// startForwardChain makes a cloud endpoint with the login, which forwards to an internal one with a
// failover, whose first child is down.
func (c *sessionLoad) startForwardChain(url string) {
	c.T.Helper()
	label := map[string]string{"app": "load"}
	a := c.StartAgent(tunnel.Bind{Labels: label, UpstreamURL: "http://localhost:1", UpstreamProtocol: "http1"},
		servicetest.ServeHTTP(c.T, c.holdRequest))
	servicetest.Receive(c.T, a.Bound, "bind")
	c.tenant.Cloud("internal", "http://hop.internal", "",
		c.tenant.Failover(c.tenant.Group(map[string]string{"app": "offline"}), c.tenant.Group(label)))
	c.tenant.Cloud("public", url,
		c.policy("")+"  - type: forward-internal\n    config: {url: \"http://hop.internal\"}\n",
		"")
	c.learnScope(url)
}

// status returns the status of a request with the session's cookie that does not ask for a page.
func (c *sessionLoad) status(as loadSession) int {
	c.T.Helper()
	client := c.http2()
	r, err := http.NewRequestWithContext(servicetest.Context(c.T), "GET", as.url+"/hello", nil)
	must.Succeed(c.T, err)
	r.Header.Set("Cookie", as.cookie)
	res, err := client.Do(r)
	if err != nil {
		c.T.Error(err)
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// pausingLogins is a store that stops login actions before and after they read a session.
type pausingLogins struct {
	account.Logins
	before, after func()
}

func (p *pausingLogins) LiveSession(
	ctx context.Context, accountID string, tokenHash []byte,
) (*account.LiveSession, error) {
	p.before()
	defer p.after()
	return p.Logins.LiveSession(ctx, accountID, tokenHash)
}

// TestRevocation_RacesWithNewRequest revokes a session while a request of it is between its
// beginning and reading the session, or between reading it and being registered as live.
func TestRevocation_RacesWithNewRequest(t *testing.T) {
	t.Parallel()
	var pause atomic.Pointer[pausingLogins]
	nothing := func() {}
	c := startSessionLoad(t, func(o *service.Options) {
		o.SetWrapLoginStore(func(l account.Logins) account.Logins {
			return &pausingLogins{l, func() {
				if p := pause.Load(); p != nil {
					p.before()
				}
			}, func() {
				if p := pause.Load(); p != nil {
					p.after()
				}
			}}
		})
	})
	api := c.adminClient()
	for _, at := range []string{"before", "after"} {
		as := c.addSession("one "+at, loadURL)
		paused, resume := make(chan struct{}), make(chan struct{})
		stop := func() { close(paused); <-resume }
		if at == "before" {
			pause.Store(&pausingLogins{before: stop, after: nothing})
		} else {
			pause.Store(&pausingLogins{before: nothing, after: stop})
		}
		answer := make(chan int)
		go func() { answer <- c.status(as) }()
		servicetest.Receive(t, paused, "request")
		pause.Store(nil)
		if status, err := api("DELETE", "/app/sessions/"+as.session); err != nil || status != http.StatusNoContent {
			t.Fatalf("DELETE: %d, %v", status, err)
		}
		close(resume)
		if status := servicetest.Receive(t, answer, "answer"); status != http.StatusUnauthorized {
			t.Errorf("revoked %s the session was read: the request is answered with %d", at, status)
		}
	}
}

// TestRevocation_EndsRacingRequests races many requests of one session with its revocation. None
// that begins after the answer to the DELETE is served, and nothing that an upstream writes after
// it reaches a client.
func TestRevocation_EndsRacingRequests(t *testing.T) {
	t.Parallel()
	c := startSessionLoad(t)
	api, shared := c.adminClient(), c.http2()
	var revoked atomic.Bool
	c.protect("https://race.example.com", c.policy(""), func(w http.ResponseWriter, _ *http.Request) {
		if revoked.Load() {
			_, _ = io.WriteString(w, "after")
		}
	})
	c.learnScope("https://race.example.com")
	as := c.addSession("racer", "https://race.example.com")
	var served, asked atomic.Int64
	racing := make(chan struct{})
	var begin sync.Once
	var racers sync.WaitGroup
	for range 100 {
		racers.Go(func() {
			for {
				late := revoked.Load()
				r, err := http.NewRequestWithContext(servicetest.Context(t), "GET", "https://race.example.com/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Cookie", as.cookie)
				e := exchange(shared, r, closed)
				if e.err == nil {
					begin.Do(func() { close(racing) })
					served.Add(1)
				}
				asked.Add(1)
				if e.err == nil && (late || e.got == "after") {
					t.Errorf("a request got %q; it began after the DELETE was answered: %t", e.got, late)
					return
				}
				if late {
					return
				}
			}
		})
	}
	servicetest.Receive(t, racing, "request that is served")
	status, err := api("DELETE", "/app/users/"+as.user)
	revoked.Store(true)
	if err != nil || status != http.StatusNoContent {
		t.Errorf("DELETE: %d, %v", status, err)
	}
	racers.Wait()
	t.Logf("%d of %d requests were served before", served.Load(), asked.Load())
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// expiringLogins is a store in which the sessions in over have ended.
type expiringLogins struct {
	account.Logins
	mu   sync.Mutex
	over map[string]bool
}

func (e *expiringLogins) LiveSessionIDs(ctx context.Context, ids []string) (map[string]bool, error) {
	alive, err := e.Logins.LiveSessionIDs(ctx, ids)
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.over {
		delete(alive, id)
	}
	return alive, err
}

// TestRevocation_SweepCutsExpiredSessions ends sessions in the store, without a revocation.
func TestRevocation_SweepCutsExpiredSessions(t *testing.T) {
	t.Parallel()
	e := &expiringLogins{over: map[string]bool{}}
	c := startSessionLoad(t, func(o *service.Options) {
		o.SetSessionSweepInterval(50 * time.Millisecond)
		o.SetWrapLoginStore(func(l account.Logins) account.Logins { e.Logins = l; return e })
	})
	shared := c.http2()
	other := c.open("events http2", c.addSession("other", loadURL), shared)
	for _, kind := range []string{"events http2", "websocket http1"} {
		o := c.open(kind, c.addSession(kind, loadURL), shared)
		e.mu.Lock()
		e.over[o.as.session] = true
		e.mu.Unlock()
		if e := servicetest.Receive(t, o.over, "end of "+kind); strings.Contains(e.got, after) ||
			kind == "events http2" && e.err == nil {
			t.Errorf("%s: %q, %v", kind, e.got, e.err)
		}
		servicetest.Receive(t, o.ended, "abort at the upstream")
		close(o.more)
	}
	close(other.more)
	c.checkCompleted(t, other)
	if !strings.Contains(c.Log.String(), "requests were cut: their sessions are over") {
		t.Error("the log lacks the cut requests")
	}
}
