// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// at is what the clock of these tests shows.
var at = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func compile(t *testing.T, text string, o ...Options) *Policy {
	t.Helper()
	options := Options{Clock: func() time.Time { return at }}
	if len(o) > 0 {
		options = o[0]
	}
	p, err := Compile(text, options)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return p
}

func fullConn() *Conn {
	return &Conn{
		ClientIP: netip.MustParseAddr("192.0.2.7"), ClientPort: 4711, OperatorID: "op-1", Cluster: "prod",
		Pod: &Pod{Namespace: "shop", Name: "cart-1", ServiceAccount: "cart",
			Annotations: map[string]string{"team": "a"}},
		Endpoint: &account.Endpoint{ID: "ep-1", URL: "http://api.shop", Scheme: "http", HostPort: "api.shop:80",
			Host: "api.shop", Port: 80},
		TLS: true, ServerName: "api.example.com", Started: at.Add(-time.Minute),
	}
}

// do sends one request through the policy. The upstream answers 200 with what it got, unless
// upstream is given.
func do(t *testing.T, p *Policy, c *Conn, r *http.Request, upstream ...http.HandlerFunc) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	called := 0
	p.ServeHTTP(w, r, c, forwardFunc(func(w http.ResponseWriter, r *http.Request, to Target) {
		if called++; called > 1 {
			t.Error("forward was called twice")
		}
		if len(upstream) > 0 {
			upstream[0](w, r)
			return
		}
		w.Header().Set("Upstream", "yes")
		_, _ = fmt.Fprintf(w, "%s %s host=%s to=%s%s", r.Method, r.URL.RequestURI(), r.Host, to.InternalURL,
			to.BackendID)
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for n := range r.Header {
				if !yield(n) {
					return
				}
			}
		}) {
			_, _ = fmt.Fprintf(w, " %s=%s", name, strings.Join(r.Header[name], ","))
		}
	}))
	return w.Result()
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	must.Succeed(t, err)
	return strings.TrimSpace(string(b))
}

// onRequest is a document with one rule of on_http_request.
func onRequest(expression, action string) string {
	doc := "on_http_request:\n- "
	if expression != "" {
		doc += "expressions:\n  - " + fmt.Sprintf("%q", expression) + "\n  "
	}
	return doc + "actions:\n  - " + action + "\n"
}

// TestRules_FailClosedWithoutValue checks that an expression that reads an absent value fails:
// actions that protect apply, and no others do.
func TestRules_FailClosedWithoutValue(t *testing.T) {
	t.Parallel()
	const unknown = "conn.pod.namespace == 'shop'"
	for name, c := range map[string]struct {
		expressions, action string
		status              int
	}{
		"deny applies":                      {unknown, "{type: deny}", 403},
		"deny applies to the negation, too": {"!(" + unknown + ")", "{type: deny}", 403},
		"restrict-ips applies":              {unknown, "{type: restrict-ips, config: {allow: [10.0.0.0/8]}}", 403},
		"restrict-ips applies and admits":   {unknown, "{type: restrict-ips, config: {allow: [192.0.2.0/24]}}", 200},
		"a login applies": {unknown, "{type: basic-auth, config: {credentials: ['u:password']}}",
			401},
		"an answer is skipped":  {unknown, "{type: custom-response, config: {status_code: 418}}", 200},
		"a redirect is skipped": {unknown, "{type: redirect, config: {to: 'http://x/'}}", 200},
		"a limit is skipped": {unknown,
			"{type: rate-limit, config: {name: a, capacity: 1, rate: 1s, bucket_key: [conn.client_ip]}}", 200},
		"false decides": {unknown + " && req.method == 'POST'", "{type: deny}", 200},
		"true decides": {unknown + " || req.method == 'GET'",
			"{type: custom-response, config: {status_code: 418}}", 418},
		"has() asks without failing":            {"has(conn.pod)", "{type: deny}", 200},
		"has() of a member":                     {"!has(conn.pod.namespace)", "{type: deny}", 403},
		"a missing header is absent":            {"req.headers['x-none'][0] == 'a'", "{type: deny}", 403},
		"getReqHeader is empty instead":         {"getReqHeader('x-none') == ['a']", "{type: deny}", 200},
		"an index out of range fails":           {"getReqHeader('x-none')[0] == 'a'", "{type: deny}", 403},
		"an expression that divides by 0 fails": {"1 / (size(req.url.query)) == 1", "{type: deny}", 403},
		"geography is unknown":                  {"conn.geo.country_code == 'DE'", "{type: deny}", 403},
		"an over-expensive one ends the request": {"req.headers.exists(a, req.headers.exists(b, a == 'z' || b == 'z'))",
			"{type: deny}", 500},
		"the last action of a rule still guards": {unknown,
			"{type: custom-response, config: {status_code: 418}}\n  - {type: deny}", 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "/", nil)
			if strings.Contains(name, "expensive") {
				for i := range 400 {
					r.Header.Set(fmt.Sprintf("H-%d", i), strings.Repeat("x", 10))
				}
			}
			p := compile(t, onRequest(c.expressions, c.action))
			if res := do(t, p, &Conn{ClientIP: netip.MustParseAddr("192.0.2.7")}, r); res.StatusCode != c.status {
				t.Errorf("status %d, want %d", res.StatusCode, c.status)
			}
		})
	}
	// Several expressions are one with && between them.
	p := compile(t,
		"on_http_request:\n- expressions: [\"conn.pod.name == 'a'\", \"req.method == 'POST'\"]\n  actions: [{type: "+
			"deny}]\n")
	if res := do(t, p, &Conn{}, httptest.NewRequest("GET", "/", nil)); res.StatusCode != 200 {
		t.Errorf("a rule that cannot match denied: %d", res.StatusCode)
	}
	if res := do(t, p, &Conn{}, httptest.NewRequest("POST", "/", nil)); res.StatusCode != 403 {
		t.Errorf("a rule that may match did not deny: %d", res.StatusCode)
	}
}

func TestConnect_Verdicts(t *testing.T) {
	t.Parallel()
	const bkd = "bkdfo-0123456789abcdefghijklmnop"
	const doc = `
on_tcp_connect:
- name: unidentified
  expressions: ["conn.pod.namespace != 'shop'"]
  actions: [{type: deny}]
- expressions: ["conn.pod.name == 'cart-1'"]
  actions:
  - type: restrict-ips
    config: {enforce: true, allow: ["192.0.2.0/24"], deny: ["192.0.2.9"]}
  - {type: forward-internal, config: {url: "tcp://DB.internal:5432"}}
- actions: [{type: forward-backend, config: {backend_id: ` + bkd + `}}]
`
	p := compile(t, doc, Options{Scheme: "tcp", Binding: "kubernetes"})
	if facts := p.Facts(); !slices.Equal(facts.Backends, []string{bkd}) || len(facts.Digest) != 64 ||
		!slices.Equal(facts.InternalHosts, []string{"db.internal"}) {
		t.Errorf("facts are %+v", facts)
	}
	other, denied, unidentified := fullConn(), fullConn(), fullConn()
	other.Pod.Name = "else"
	denied.ClientIP = netip.MustParseAddr("::ffff:192.0.2.9")
	unidentified.Pod = nil
	for name, c := range map[string]struct {
		conn *Conn
		want Verdict
	}{
		"internal": {fullConn(), Verdict{Target: Target{InternalURL: "tcp://db.internal:5432"},
			Rule: "on_tcp_connect[1]"}},
		"backend": {other, Verdict{Target: Target{BackendID: bkd}, Rule: "on_tcp_connect[2]"}},
		"address": {denied, Verdict{Deny: true, Rule: "on_tcp_connect[1]"}},
		"no pod":  {unidentified, Verdict{Deny: true, Rule: "unidentified"}},
		"nothing": {&Conn{}, Verdict{Deny: true, Rule: "unidentified"}},
	} {
		if got := p.Connect(t.Context(), c.conn); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if got := compile(t, "").Connect(t.Context(), &Conn{}); got != (Verdict{}) {
		t.Errorf("no policy: %+v", got)
	}
}

func TestFacts_InternalHosts(t *testing.T) {
	t.Parallel()
	forward := func(url string) string {
		return "{expressions: [\"req.method == 'GET'\"], actions: [{type: forward-internal, config: {url: '" +
			url + "'}}]}"
	}
	for rules, want := range map[string][]string{
		forward("http://B.internal:8080") + "," + forward("http://a.internal") + "," + forward("http://b.internal"): {
			"a.internal", "b.internal"},
		forward("http://${req.method}.internal"): {"*"},
	} {
		p, err := Compile("on_http_request: ["+rules+"]", Options{})
		if err != nil || !slices.Equal(p.Facts().InternalHosts, want) {
			t.Errorf("%s: %+v, %v, want %v", rules, p, err, want)
		}
	}
}

func TestCompile_ReturnsFieldErrors(t *testing.T) {
	t.Parallel()
	_, err := Compile("on_http_request:\n- actions: [{type: nope}, {type: deny, config: {x: 1}}]\n  color: red\n",
		Options{})
	var e *account.Error
	if !errors.As(err, &e) || e.Code != account.CodeInvalid || len(e.Fields) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{"line 2, column 20: there is no action \"nope\"",
		"line 2, column 49: the config of deny has no key \"x\"", "line 3, column 3: a rule has no key \"color\""} {
		if f := e.Fields[i]; f.Field != "traffic_policy" || !strings.HasPrefix(f.Rule, want) {
			t.Errorf("field error %+v, want %q", f, want)
		}
	}
}

// TestCompile_RefusesBombs checks that expressions that would take CEL minutes to check, or a
// request seconds to evaluate, are refused early.
func TestCompile_RefusesBombs(t *testing.T) {
	t.Parallel()
	nest := func(open, end string, n int) string { return strings.Repeat(open, n) + "true" + strings.Repeat(end, n) }
	for name, c := range map[string]struct{ expression, want string }{
		"lists":       {"size([" + nest("[", "]", 25) + "]) == 1", "lists and maps are nested"},
		"maps":        {"size(" + nest("{1: ", "}", 25) + ") == 1", "lists and maps are nested"},
		"loops":       {nest("[1, 2, 3].all(x, ", ")", 20), "loops (exists, all, map, filter) are nested"},
		"parentheses": {nest("(", ")", 1000), "nested too deeply"},
		"conditions":  {strings.Repeat("true ? true : ", 200) + "true", "nested too deeply"},
		"a chain":     {"0" + strings.Repeat(" + 1", 500) + " == 1", "nested too deeply"},
		"products":    {"req.headers.all(a, req.headers.all(b, req.headers.all(c, a + b == c)))", "may cost too much"},
		"repetitions": {"req.host.matches('((x{30}){30}){1,1}y{999}')", "the regular expression is"},
		"length":      {"req.host == '" + strings.Repeat("x", maxExpression) + "'", "at most 4096 bytes"},
	} {
		if _, problems := Check(onRequest(c.expression, "{type: deny}"), Options{}); len(problems) != 1 ||
			!strings.Contains(problems[0].Msg, c.want) {
			t.Errorf("%s: %v", name, problems)
		}
	}
	// Texts cannot grow without bound when they are made, either.
	grow := "req.host" + strings.Repeat(".replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')", 20) + " == 'x'"
	if res := do(t, compile(t, onRequest(grow, "{type: deny}")), &Conn{},
		httptest.NewRequest("GET", "http://a/", nil)); res.StatusCode != 403 {
		t.Errorf("an expression that makes terabytes: status %d", res.StatusCode)
	}
	one := "- expressions: [\"req.host == 'a'\"]\n  actions: [{type: deny}]\n"
	for name, c := range map[string]struct{ text, want string }{
		"rules": {"on_http_request:\n" + strings.Repeat(one, maxRules+1), "at most 128 rules"},
		"cost": {"on_http_request:\n" +
			strings.Repeat(
				"- expressions: [\"req.headers.all(a, req.headers.exists(b, b == 'x'))\"]\n  actions: [{type: deny}]\n",
				120),
			"together"},
		"limits": {
			onRequest("",
				strings.TrimPrefix(
					strings.Repeat(
						"\n  - {type: rate-limit, config: {name: a, capacity: 1, rate: 1s, bucket_key: [req.host]}}",
						16),
					"\n  - ")) +
				"- actions:\n  - {type: rate-limit, config: {name: a, capacity: 1, rate: 1s, bucket_key: " +
				"[req.host]}}\n",
			"at most 16 rate limits"},
		"texts": {onRequest("", "{type: custom-response, config: {body: \""+strings.Repeat("${1}", maxExpressions+1)+
			"\"}}"),
			"at most 512 expressions"},
		"size": {strings.Repeat("#", MaxBytes+1), "at most 65536"},
	} {
		if _, problems := Check(c.text, Options{}); len(problems) == 0 || !strings.Contains(problems[0].Msg, c.want) {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestCheck_LimitsProblems(t *testing.T) {
	t.Parallel()
	_, problems := Check("on_http_request:\n"+strings.Repeat("- {}\n", maxRules), Options{})
	if len(problems) != maxProblems || problems[0].Line != 2 ||
		problems[maxProblems-1].Msg != "79 more mistakes from here on" {
		t.Errorf("%d mistakes told, the last is %+v", len(problems), problems[len(problems)-1])
	}
}

// forwardFunc is a Forwarder that answers what a policy refuses with plain text.
type forwardFunc func(w http.ResponseWriter, r *http.Request, t Target)

func (f forwardFunc) Forward(w http.ResponseWriter, r *http.Request, t Target) { f(w, r, t) }

func (forwardFunc) WritePage(w http.ResponseWriter, _ *http.Request, status int, code account.Code, msg string) {
	h := w.Header()
	h.Set(account.CodeHeader, string(code))
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(strings.TrimSuffix(msg, "\n") + "\n")) // the client may be gone
}
