// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// leaves are Attempts that return list in order, and record the results reported to them.
type leaves struct {
	mu   sync.Mutex
	list []Attempt
	told []string
}

type leafOutcome struct {
	of    *leaves
	name  string
	retry []int // statuses that count as failures
}

func (l *leaves) add(a Attempt, retry ...int) *leaves {
	a.BackendID = fmt.Sprint("b", len(l.list))
	a.Outcome = &leafOutcome{l, a.BackendID, retry}
	l.list = append(l.list, a)
	return l
}

// Next returns the next leaf.
func (l *leaves) Next(context.Context) (Attempt, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == 0 {
		return Attempt{}, false
	}
	a := l.list[0]
	l.list = l.list[1:]
	return a, true
}

func (o *leafOutcome) tell(what string) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.of.told = append(o.of.told, o.name+" "+what)
}

func (o *leafOutcome) Up()        { o.tell("up") }
func (o *leafOutcome) Down(error) { o.tell("down") }
func (o *leafOutcome) Status(code int) bool {
	o.tell(fmt.Sprint(code))
	return slices.Contains(o.retry, code)
}

func static(address string) Attempt {
	return Attempt{Static: &account.StaticAddress{Address: address}}
}

func answer(status int, body string) Attempt {
	return Attempt{Response: &account.HTTPResponse{StatusCode: status, Body: body}}
}

func cloudEndpoint(policy, backendID string) *account.Endpoint {
	ep := httpEndpoint()
	ep.Type, ep.TrafficPolicy, ep.BackendID = account.TypeCloud, policy, backendID
	return ep
}

// dialing lets an edge connect to static addresses without a guard.
func dialing(l *leaves) func(*Options) {
	return func(o *Options) {
		o.StaticDialer, o.Backends = anyDialer{}, l
	}
}

// anyDialer is a StaticDialer without a guard.
type anyDialer struct{}

func (anyDialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// Attempts makes the leaves those of each backend but "none".
func (l *leaves) Attempts(_ context.Context, _, id string, _ *ClientInfo) (Attempts, error) {
	if id == "none" {
		return nil, &account.Error{Code: account.CodeNotFound}
	}
	return l, nil
}

func ask(e *Edge, ep *account.Endpoint, method, body string) *httptest.ResponseRecorder {
	var r *http.Request
	if body == "" {
		r = httptest.NewRequest(method, "http://hello.demo/x", nil)
	} else {
		r = httptest.NewRequest(method, "http://hello.demo/x", strings.NewReader(body))
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r, ep, ClientInfo{})
	return w
}

func TestRoute_TriesLeavesInOrderAndReports(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.WriteHeader(503)
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, b)
	}))
	t.Cleanup(up.Close)
	live, closed := static(up.Listener.Addr().String()), static(closedport.Reserve(t))
	for name, c := range map[string]struct {
		leaves       *leaves
		method, body string
		status       int
		want         string
		told         []string
	}{
		"past a closed port, with the body": {new(leaves).add(closed).add(live), "POST", "body", 503, "POST body",
			[]string{"b0 down", "b1 up", "b1 503"}},
		"a status that counts": {new(leaves).add(live, 503).add(answer(200, "canned")), "GET", "", 200, "canned",
			[]string{"b0 up", "b0 503", "b1 up", "b1 200"}},
		"a status that counts, of a POST": {new(leaves).add(live, 503).add(answer(200, "canned")), "POST", "x", 503,
			"POST x", []string{"b0 up", "b0 503"}},
		"a status that counts, at the end": {new(leaves).add(live, 503), "GET", "", 503, "GET ",
			[]string{"b0 up", "b0 503"}},
		"no reachable child": {new(leaves).add(closed).add(closed), "GET", "", 503,
			string(account.CodeNoChild), []string{"b0 down", "b1 down"}},
		"an answer without a body": {new(leaves).add(answer(204, "not sent")), "POST", "x", 204, "",
			[]string{"b0 up", "b0 204"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t, dialing(c.leaves))
			w := ask(e, cloudEndpoint("", "b"), c.method, c.body)
			if got := w.Body.String(); w.Code != c.status || !strings.Contains(got, c.want) || c.want == "" &&
				got != "" {
				t.Errorf("%d %q, want %d %q", w.Code, got, c.status, c.want)
			}
			if !slices.Equal(c.leaves.told, c.told) {
				t.Errorf("told %q, want %q", c.leaves.told, c.told)
			}
		})
	}
}

func TestServeHTTP_AnswersCloudEndpointWithoutTarget(t *testing.T) {
	t.Parallel()
	e := newEdge(t, dialing(new(leaves)), func(o *Options) {
		o.Endpoints = &fakeEndpoints{byURL: func(_ context.Context, _, url string) (*account.Endpoint, error) {
			if url == "tcp://db.internal:5432" {
				ep := httpEndpoint()
				ep.Scheme = "tcp"
				return ep, nil
			}
			return nil, &account.Error{Code: account.CodeNotFound}
		}}
	})
	forward := func(url string) string {
		return "on_http_request: [{actions: [{type: forward-internal, config: {url: '" + url + "'}}]}]"
	}
	for name, c := range map[string]struct {
		ep   *account.Endpoint
		code account.Code
	}{
		"without a target":           {cloudEndpoint("", ""), account.CodeNoTarget},
		"a backend that is gone":     {cloudEndpoint("", "none"), account.CodeNoTarget},
		"a policy that lets all by":  {cloudEndpoint("on_http_request: []", ""), account.CodeNoTarget},
		"an internal one that's not": {cloudEndpoint(forward("http://a.internal"), ""), account.CodeNoInternal},
		"a policy of other rules": {cloudEndpoint("on_http_request: [{actions: [{type: from-the-future}]}]", "b"),
			account.CodePolicyBroken},
		"no policy at all": {cloudEndpoint("{{", "b"), account.CodePolicyBroken},
	} {
		w := ask(e, c.ep, "GET", "")
		if w.Code != c.code.Status() || w.Header().Get(account.CodeHeader) != string(c.code) {
			t.Errorf("%s: %d %s, want %s", name, w.Code, w.Body, c.code)
		}
	}
}

// TestPolicies_CompileOncePerURL checks that the counters of a policy belong to the URL: they go on
// for texts that mean the same, and begin anew with another policy.
func TestPolicies_CompileOncePerURL(t *testing.T) {
	t.Parallel()
	p := newPolicies(slog.New(slog.DiscardHandler), nil)
	one, same, other := cloudEndpoint("on_http_request: []", ""), cloudEndpoint("# the same\non_http_request: []", ""),
		cloudEndpoint("on_http_request: [{actions: [{type: deny}]}]", "")
	same.ID = "ep-2" // of a pool
	get := func(ep *account.Endpoint) any {
		t.Helper()
		got, err := p.forEndpoint(ep)
		must.Succeed(t, err)
		return got
	}
	first := get(one)
	if get(one) != first || get(same) != first || get(one) != first {
		t.Error("texts that mean the same are different policies")
	}
	if get(other) == first {
		t.Error("another text is the same policy")
	}
	elsewhere := cloudEndpoint(one.TrafficPolicy, "")
	elsewhere.AccountID = "ac-2"
	if a, b := get(one), get(elsewhere); a == b {
		t.Error("two accounts share a policy")
	}
	if got, err := p.forEndpoint(httpEndpoint()); got != nil || err != nil {
		t.Errorf("without a text: %v %v", got, err)
	}
	for i := range maxPolicies + 10 {
		ep := cloudEndpoint("on_http_request: []", "")
		ep.URL = fmt.Sprint("http://", i, ".demo")
		p.entry(policyKey{ep.AccountID, ep.Bindings[0], ep.URL})
	}
	if len(p.byURL) != maxPolicies || p.lru.Len() != maxPolicies {
		t.Errorf("%d policies are kept, in order %d", len(p.byURL), p.lru.Len())
	}
}

func TestConnVerdicts_EvaluateOncePerConnection(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	deny := cloudEndpoint("on_tcp_connect: [{actions: [{type: deny}]}]", "")
	var memory connVerdicts
	for range 3 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil), deny, ClientInfo{verdicts: &memory})
		if w.Code != 403 || w.Header().Get(account.CodeHeader) != string(account.CodeDenied) {
			t.Errorf("a denied connection: %d %s", w.Code, w.Body)
		}
	}
	if len(memory.cached) != 1 {
		t.Errorf("the policy was asked %d times", len(memory.cached))
	}
	admit := cloudEndpoint("on_http_request: [{actions: [{type: custom-response, config: {status_code: 204}}]}]", "")
	w := httptest.NewRecorder()
	// another policy, set meanwhile
	e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil), admit, ClientInfo{verdicts: &memory})
	if w.Code != 204 || len(memory.cached) != 2 {
		t.Errorf("after a change: %d %s, asked %d times", w.Code, w.Body, len(memory.cached))
	}
}

func TestEndpointCache_RefreshesWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		name, reads := "one", 0
		var broken error
		c := newEndpointCache(&Options{Logger: slog.New(slog.DiscardHandler),
			Endpoints: &fakeEndpoints{byID: func(context.Context, string, string) (*account.Endpoint, error) {
				reads++
				if broken != nil {
					return nil, broken
				}
				ep := cloudEndpoint("", "")
				ep.Name = name
				return ep, nil
			}}})
		ask := func(want string) {
			t.Helper()
			got, err := c.latest(t.Context(), cloudEndpoint("", ""))
			if err != nil || got.Name != want {
				t.Errorf("it is %+v %v, want %s", got, err, want)
			}
		}
		for range 1000 {
			ask("one")
			time.Sleep(time.Millisecond)
		}
		if reads > 3 {
			t.Errorf("a second of requests took %d reads", reads)
		}
		name = "two"
		time.Sleep(time.Second)
		ask("two")
		broken = account.Errorf(account.CodeUnavailable, "disk full")
		time.Sleep(time.Hour)
		ask("two") // as it was: nothing can change meanwhile
		broken = &account.Error{Code: account.CodeNotFound}
		time.Sleep(time.Second)
		if _, err := c.latest(t.Context(), cloudEndpoint("", "")); account.CodeOf(err) != account.CodeEndpointUnknown {
			t.Errorf("a deleted endpoint: %v", err)
		}
	})
}

func TestReplayBuffer_KeepsBodyUntilAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := bytes.Repeat([]byte("0123456789"), 30_000)
		client, body := net.Pipe()
		go func() {
			_, _ = client.Write(sent)
			_ = client.Close()
		}()
		b := newReplayBuffer(body)
		first := b.newReader()
		var got bytes.Buffer
		done := make(chan error, 1)
		go func() {
			_, err := io.Copy(&got, first)
			done <- err
		}()
		synctest.Wait()
		if got.Len() != maxReplayBytes {
			t.Errorf("%d bytes went out before an agent had accepted them", got.Len())
		}
		refused := errors.New("refused")
		first.answered(refused)
		if err := <-done; !errors.Is(err, refused) {
			t.Errorf("the first attempt ended with %v", err)
		}
		second := b.newReader()
		second.awaitAnswer()
		second.answered(nil)
		all, err := io.ReadAll(second)
		if err != nil || !bytes.Equal(all, sent) || !b.consumed() {
			t.Errorf("the second got %d of %d bytes, %v", len(all), len(sent), err)
		}
	})
}
