// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// actionCase is one row: an action, a request to http://a.b, and what the client gets.
type actionCase struct {
	action string
	url    string
	header http.Header
	status int
	want   string            // in the body
	with   map[string]string // headers of the answer
}

// accessCases are the actions that admit or refuse a request.
var accessCases = map[string]actionCase{
	"deny": {"{type: deny}", "/", nil, 403, "does not admit",
		map[string]string{account.CodeHeader: "ERR_FL_3010", "Upstream": ""}},
	"deny with a status":        {"{type: deny, config: {status_code: 404}}", "/", nil, 404, "", nil},
	"deny with an empty config": {"{type: deny, config: }", "/", nil, 403, "", nil},
	"restrict-ips admits": {"{type: restrict-ips, config: {allow: ['192.0.2.0/24', '::/0']}}",
		"/", nil, 200, "", nil},
	"restrict-ips denies": {"{type: restrict-ips, config: {allow: ['192.0.2.0/24'], deny: [192.0.2.7]}}",
		"/", nil, 403, "", nil},
	"restrict-ips by expression": {"{type: restrict-ips, config: {allow: ['${conn.client_ip}']}}",
		"/", nil, 200, "", nil},
	"restrict-ips, unknown allow": {"{type: restrict-ips, config: {allow: ['${conn.geo.city}']}}",
		"/", nil, 403, "", nil},
	"restrict-ips, unknown deny": {
		"{type: restrict-ips, config: {allow: ['0.0.0.0/0'], deny: ['${conn.geo.city}']}}",
		"/", nil, 403, "", nil},
	"restrict-ips not enforced": {"{type: restrict-ips, config: {allow: [10.0.0.1], enforce: false}}",
		"/", nil, 200, "", nil},
	"basic-auth asks": {"{type: basic-auth, config: {credentials: ['u:password', 'v:pass:word'], realm: here}}",
		"/", nil, 401, "", map[string]string{"Www-Authenticate": `Basic realm="here", charset="UTF-8"`,
			account.CodeHeader: "ERR_FL_3011"}},
	"basic-auth admits": {"{type: basic-auth, config: {credentials: ['u:password', 'v:pass:word']}}",
		"/", http.Header{"Authorization": {"Basic djpwYXNzOndvcmQ="}}, 200, "", nil},
	"basic-auth refuses": {"{type: basic-auth, config: {credentials: ['u:password']}}",
		"/", http.Header{"Authorization": {"Basic dTp3cm9uZ3dyb25n"}}, 401, "", nil},
	"basic-auth not enforced": {"{type: basic-auth, config: {credentials: ['u:password'], enforce: false}}",
		"/", nil, 200, "", nil},
}

// answerCases are the actions that answer a request.
var answerCases = map[string]actionCase{
	"custom-response": {
		"{type: custom-response, config: {status_code: 418, body: 'I am ${conn.pod.name}', " +
			"headers: {x-a: '${req.method}', X-No: '${conn.geo.city}'}}}",
		"/", nil, 418, "I am cart-1",
		map[string]string{"X-A": "GET", "X-No": "", "Content-Type": "text/plain; charset=utf-8",
			"Content-Length": "11", "Upstream": ""}},
	"custom-response of JSON": {
		`{type: custom-response, config: {body: '{"a": "$${x} ${"}" + string(1 + 1)}"}'}}`,
		"/", nil, 200, `{"a": "${x} }2"}`, map[string]string{"Content-Type": "application/json"}},
	"custom-response of HTML": {"{type: custom-response, config: {body: '<html>'}}",
		"/", nil, 200, "<html>", map[string]string{"Content-Type": "text/html; charset=utf-8"}},
	"custom-response, no body": {"{type: custom-response, config: {status_code: 204}}",
		"/", nil, 204, "", map[string]string{"Content-Length": ""}},
	"custom-response, unknown": {"{type: custom-response, config: {body: '${conn.geo.city}'}}",
		"/", nil, 500, "could not be carried out", map[string]string{account.CodeHeader: "ERR_FL_3013"}},
	"redirect all": {"{type: redirect, config: {to: 'https://new.example${req.url.uri}'}}",
		"/p?q=1", nil, 302, "", map[string]string{"Location": "https://new.example/p?q=1"}},
	"redirect matches": {
		"{type: redirect, config: {from: '^http://([^/]+)/old/(.*)$', to: 'http://$1/new/$2', " +
			"status_code: 301, headers: {x-a: b}}}",
		"/old/x?y", nil, 301, "", map[string]string{"Location": "http://a.b/new/x?y", "X-A": "b"}},
	"redirect does not match": {"{type: redirect, config: {from: /old/, to: /new/}}",
		"/x", nil, 200, "GET /x", nil},
	"redirect changes nothing": {"{type: redirect, config: {from: /x, to: /x}}", "/x", nil, 200, "GET /x", nil},
	"a client's $1 is a text": {"{type: redirect, config: {from: '^.*/(x)$', to: '/${req.url.query}/$1'}}",
		"/x?$1", nil, 200, "", nil},
	"a client's $1 in a result": {"{type: redirect, config: {from: '^.*/(x).*$', to: '/${req.url.query}/$1'}}",
		"/x?$1", nil, 302, "", map[string]string{"Location": "/$1/x"}},
	"an expression in from is a text": {"{type: redirect, config: {from: '${req.host}/x', to: 'c.d/y'}}",
		"/x", nil, 302, "", map[string]string{"Location": "http://c.d/y"}},
	"redirect with a line break": {"{type: redirect, config: {to: 'http://x/${req.url.path}'}}",
		"/%0d%0aSet-Cookie:a", nil, 500, "", map[string]string{"Set-Cookie": ""}},
	"redirect of a long URL": {"{type: redirect, config: {from: a, to: b}}",
		"/" + strings.Repeat("a", maxURL), nil, 500, "", nil},
}

// rewriteCases are the actions that change a request before it is forwarded.
var rewriteCases = map[string]actionCase{
	"url-rewrite": {"{type: url-rewrite, config: {from: '/api/(\\w+)', to: '/v2/$1'}}",
		"/api/users?a=%2F", nil, 200, "GET /v2/users?a=%2F host=a.b", nil},
	"url-rewrite keeps the host": {"{type: url-rewrite, config: {from: '^http://[^/]+/', to: 'http://evil/x/'}}",
		"/y%2Fz", nil, 200, "GET /x/y%2Fz host=a.b", nil},
	"url-rewrite to no path": {"{type: url-rewrite, config: {from: '^http://a.b', to: ''}}",
		"/x", nil, 200, "GET /x host=a.b", nil},
	"url-rewrite to nonsense": {"{type: url-rewrite, config: {to: 'mailto:a'}}", "/x", nil, 500, "", nil},
	"add-headers": {
		"{type: add-headers, config: {headers: {x-pod: '${conn.pod.name}', x-a: new, " +
			"x-geo: '${conn.geo.city}', host: c.d}}}",
		"/", http.Header{"X-A": {"old"}}, 200, "host=c.d to= X-A=old,new X-Pod=cart-1", nil},
	"add-headers with a line break": {
		"{type: add-headers, config: {headers: {x-p: '${req.url.path}', x-q: q, host: '${req.url.path}'}}}",
		"/%0d%0ax", nil, 200, "host=a.b to= X-Q=q", nil},
	"remove-headers": {"{type: remove-headers, config: {headers: [x-a, X_B, authorization]}}",
		"/", http.Header{"X-A": {"1", "2"}, "X_b": {"1"}, "X-C": {"c"}}, 200, "to= X-C=c", nil},
}

// forwardCases are the actions that choose where a request goes.
var forwardCases = map[string]actionCase{
	"forward-internal": {"{type: forward-internal, config: {url: 'http://X.Internal/', on_error: halt}}",
		"/", nil, 200, "to=http://x.internal", nil},
	"forward-internal, chosen": {
		"{type: forward-internal, config: {url: 'http://${conn.pod.namespace}.internal:8080'}}",
		"/", nil, 200, "to=http://shop.internal:8080", nil},
	"forward-internal, unknown": {"{type: forward-internal, config: {url: 'http://${conn.geo.city}.internal'}}",
		"/", nil, 500, "", nil},
	"forward-internal, wrong": {"{type: forward-internal, config: {url: 'http://${req.url.query}.internal'}}",
		"/?a/b", nil, 500, "", nil},
	"forward-backend": {"{type: forward-backend, config: {backend_id: bkdst-0123456789abcdefghijklmnop}}",
		"/", nil, 200, "to=bkdst-", nil},
}

func TestActions_AdmitOrRefuse(t *testing.T) { t.Parallel(); testActions(t, accessCases) }

func TestActions_Answer(t *testing.T) { t.Parallel(); testActions(t, answerCases) }

func TestActions_RewriteRequest(t *testing.T) { t.Parallel(); testActions(t, rewriteCases) }

func TestActions_ChooseTarget(t *testing.T) { t.Parallel(); testActions(t, forwardCases) }

// testActions compiles a policy of each action and sends one request through it.
func testActions(t *testing.T, cases map[string]actionCase) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := compile(t, onRequest("", c.action))
			r := httptest.NewRequest("GET", c.url, nil)
			r.Host = "a.b"
			for k, v := range c.header {
				r.Header[k] = v
			}
			before := fmt.Sprint(r.Header, r.URL, r.Host)
			conn := fullConn()
			conn.TLS = false
			res := do(t, p, conn, r)
			got := body(t, res)
			if res.StatusCode != c.status || !strings.Contains(got, c.want) {
				t.Errorf("got %d %q, want %d %q", res.StatusCode, got, c.status, c.want)
			}
			for k, want := range c.with {
				if v := res.Header.Get(k); v != want {
					t.Errorf("%s: %q, want %q", k, v, want)
				}
			}
			if after := fmt.Sprint(r.Header, r.URL, r.Host); after != before {
				t.Errorf("the request that was given has changed from %s to %s", before, after)
			}
		})
	}
}

func TestRules_RunInOrder(t *testing.T) {
	t.Parallel()
	p := compile(t, `
on_http_request:
- actions:
  - {type: url-rewrite, config: {from: /a, to: /b}}
  - {type: add-headers, config: {headers: {x-step: one}}}
- expressions: ["req.url.path == '/b'", "getReqHeader('X-Step') == ['one']"]
  actions: [{type: add-headers, config: {headers: {x-step: two}}}]
- expressions: ["req.url.path == '/a'"]
  actions: [{type: deny}]
- actions:
  - {type: forward-internal, config: {url: http://x.internal}}
  - {type: deny}
- actions: [{type: deny}]
`)
	res := do(t, p, fullConn(), httptest.NewRequest("GET", "/a", nil))
	if got := body(t, res); res.StatusCode != 200 || !strings.Contains(got, "GET /b") ||
		!strings.Contains(got, "X-Step=one,two") || !strings.Contains(got, "to=http://x.internal") {
		t.Errorf("got %d %q", res.StatusCode, got)
	}
}

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) step(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

func TestRateLimit_LimitsByKey(t *testing.T) {
	t.Parallel()
	c := &clock{now: at}
	p := compile(t,
		onRequest("",
			"{type: rate-limit, config: {name: a, algorithm: sliding_window, capacity: 10, rate: 60s, bucket_key: "+
				"['req.host', \"getReqHeader('x-key')\"]}}"), Options{Clock: c.Now})
	send := func(key string) *http.Response {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Key", key)
		return do(t, p, &Conn{}, r)
	}
	admitted := func(key string, n int) (ok int) {
		for range n {
			if send(key).StatusCode == 200 {
				ok++
			}
		}
		return ok
	}
	if n := admitted("a", 20); n != 10 {
		t.Errorf("%d of 20 admitted at once, want 10", n)
	}
	res := send("a")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "60" ||
		res.Header.Get(account.CodeHeader) != string(account.CodeRateLimited) {
		t.Errorf("got %d, Retry-After %s", res.StatusCode, res.Header.Get("Retry-After"))
	}
	if n := admitted("b", 3); n != 3 {
		t.Errorf("another key was limited: %d of 3", n)
	}
	c.step(59 * time.Second) // too early by a second
	if n := admitted("a", 1); n != 0 {
		t.Error("admitted before Retry-After was over")
	}
	c.step(time.Second)
	if n := admitted("a", 4); n != 4 {
		t.Errorf("%d of 4 admitted after Retry-After", n)
	}
	c.step(30 * time.Second)
	if n := admitted("a", 20); n != 6 {
		t.Errorf("%d admitted in the middle of the stretch, want 6 beside the 4 before", n)
	}
	c.step(30 * time.Second)
	if n := admitted("a", 20); n != 4 {
		t.Errorf("%d admitted at the end of the stretch, want as many as have left it: 4", n)
	}
	c.step(-time.Hour)
	if n := admitted("a", 20); n > 10 {
		t.Errorf("a clock that went back lets %d through", n)
	}
	c.step(5 * time.Hour)
	if n := admitted("a", 20); n != 10 {
		t.Errorf("%d of 20 admitted after a long while, want 10", n)
	}
}

func TestRateLimit_BoundsMemory(t *testing.T) {
	t.Parallel()
	p := compile(t,
		onRequest("", "{type: rate-limit, config: {name: a, capacity: 5, rate: 60s, bucket_key: [req.url.query]}}"))
	limiter := p.rules[onHTTPRequest][0].actions[0].action.(*rateLimit).window
	for i := range maxKeys + 100 {
		limiter.reserve(uint64(i)+1, at)
	}
	if n := len(limiter.keys); n > maxKeys+1 {
		t.Errorf("%d keys, at most %d", n, maxKeys+1)
	}
	if limiter.reserve(1<<60, at) == 0 {
		t.Error("callers beyond the last bucket are not limited")
	}
	if limiter.reserve(1, at) != 0 {
		t.Error("a caller with a bucket of its own suffers from the others")
	}
	if limiter.reserve(1<<60, at.Add(time.Hour)) != 0 || len(limiter.keys) != 1 {
		t.Errorf("%d keys are kept after a while, want the one that is in use", len(limiter.keys))
	}
}

// TestHeaderName_RefusesReserved checks that names and values that would break a message in two, or
// that the edge sets, are refused.
func TestHeaderName_RefusesReserved(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Connection", "transfer-encoding", "Content-Length", "TE", "upgrade", "Keep-Alive",
		"Trailer", "Proxy-Connection",
		"fairlead-user", "Fairlead_User", "a b", "a\\r\\nb", "", "ä"} {
		for _, action := range []string{"{type: add-headers, config: {headers: {%q: x}}}",
			"{type: remove-headers, config: {headers: [%q]}}",
			"{type: custom-response, config: {headers: {%q: x}}}",
			"{type: redirect, config: {to: /, headers: {%q: x}}}"} {
			doc := onRequest("", strings.ReplaceAll(fmt.Sprintf(action, name), `\\`, `\`))
			if _, problems := Check(doc, Options{}); len(problems) != 1 {
				t.Errorf("%s: %v", doc, problems)
			}
		}
	}
	for _, doc := range []string{
		onRequest("", `{type: add-headers, config: {headers: {x: "a\r\nb"}}}`),
		onRequest("", `{type: add-headers, config: {headers: {host: "a/b c"}}}`),
		onRequest("", `{type: custom-response, config: {headers: {host: a}}}`),
		"on_http_response:\n- actions: [{type: add-headers, config: {headers: {Host: a}}}]\n",
	} {
		if _, problems := Check(doc, Options{}); len(problems) != 1 {
			t.Errorf("%s: %v", doc, problems)
		}
	}
}

// TestActions_SetResults checks that an action that is not enforced (enforce: false) lets
// everything through and leaves its result to later rules, those of the response among them.
func TestActions_SetResults(t *testing.T) {
	t.Parallel()
	p := compile(t, `
on_http_request:
- actions:
  - {type: restrict-ips, config: {enforce: false, allow: [10.0.0.0/8]}}
  - {type: basic-auth, config: {enforce: false, credentials: ["ann:password"]}}
  - {type: rate-limit, config: {enforce: false, name: a, capacity: 1, rate: 60s, bucket_key: [req.host]}}
- expressions:
  - actions.rate_limit.limited
  - "!actions.basic_auth.credentials.authorized"
  - "actions.restrict_ips.action == 'deny'"
  actions:
  - type: custom-response
    config: {status_code: 429, body: "too many, ${actions.ngrok.basic_auth.credentials.username}"}
on_http_response:
- actions:
  - type: add-headers
    config:
      headers:
        x-ip: "${actions.restrict_ips.action}"
        x-auth: "${actions.basic_auth.credentials.authorized}"
        x-sent: "${actions.basic_auth.credentials.presented}"
        x-user: "${actions.basic_auth.credentials.username}"
`)
	send := func(password string) *http.Response {
		r := httptest.NewRequest("GET", "http://a/", nil)
		if password != "" {
			r.SetBasicAuth("ann", password)
		}
		return do(t, p, fullConn(), r)
	}
	if h := send("").Header; h.Get("X-Ip") != "deny" || h.Get("X-Auth") != "false" || h.Get("X-Sent") != "false" ||
		h["X-User"] != nil {
		t.Errorf("nothing was sent: %v", h)
	}
	if h := send("password").Header; h.Get("X-Auth") != "true" || h.Get("X-Sent") != "true" ||
		h.Get("X-User") != "ann" {
		t.Errorf("the right password was sent: %v", h)
	}
	if res := send("wrong"); res.StatusCode != 429 || body(t, res) != "too many, ann" {
		t.Errorf("the wrong one, beyond the limit: %d", res.StatusCode)
	}
}
