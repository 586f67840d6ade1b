// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ruleTimes is a document with the same rule many times.
func ruleTimes(times int, expression, action string) string {
	return "on_http_request:\n" +
		strings.Repeat(strings.TrimPrefix(onRequest(expression, action), "on_http_request:\n"),
			times)
}

const addHeader = "{type: add-headers, config: {headers: {a: b}}}"

// costlyPolicies are documents of which one request once took from 50 ms to 20 s of CPU.
func costlyPolicies() map[string]struct{ doc, path, query string } {
	words := "/" + strings.Repeat("abcdefghi/", 6000)
	accents := "/" + strings.Repeat("é", 30_000)
	digits := strings.Repeat("1", 60_000)
	times := func(n int, condition string) string { return strings.Repeat(condition+" && ", n) + "true" }
	rule := func(expression string) string { return ruleTimes(120, expression, addHeader) }
	product := "[1,2,3,4,5,6,7,8,9,10,11,12]"
	dag := "[[0,0,0,0,0,0,0,0]].map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a])"
	return map[string]struct{ doc, path, query string }{
		"regexp":       {rule("req.url.path.matches('(.*a.*b.*c.*d.*e.*f){8}z')"), words, ""},
		"boundaries":   {rule(`req.url.path.matches('(\\b.*){50}z')`), words, ""},
		"literal text": {rule("'" + strings.Repeat("a", 300) + "'.matches('(.*a.*b){40}z')"), "/", ""},
		"size":         {rule(times(5, "size(req.url.path) > 0")), accents, ""},
		"contains":     {rule(times(5, "!req.url.path.contains('iaz')")), words, ""},
		"lower":        {rule("req.url.path.lower() != 'a'"), accents, ""},
		"replace":      {rule("req.url.path.replace('a', 'b') != 'x'"), words, ""},
		"concat":       {rule("req.url.path + req.url.path + req.url.path != 'x'"), words, ""},
		"doubling":     {rule("[req.url.path].map(a, a + a).map(a, a + a).map(a, a + a) != []"), words, ""},
		"double":       {rule("double(req.url.path.substring(1)) > 0.0"), "/" + digits, ""},
		"equal":        {rule(times(5, "req.url.path == req.url.raw_path")), words, ""},
		"in":           {rule(times(5, "!(req.url.path in ['a', 'b'])")), words, ""},
		"key":          {rule(times(8, "!(req.url.path in req.headers)")), words, ""},
		"index":        {rule(times(5, "req.headers[req.url.path] == ['']")), words, ""},
		"equal maps":   {rule("req.url.query_params == req.query_params"), "/", strings.Repeat("a&", 9000)},
		"loops": {ruleTimes(60, product+".all(a, "+product+".all(b, "+product+".all(c, true)))", addHeader), "/",
			""},
		"shared lists": {ruleTimes(20, dag+" == "+dag, addHeader), "/", ""},
		"long match":   {onRequest("", "{type: redirect, config: {from: '.*z|a', to: b}}"), words[:16_000], ""},
		"no match": {ruleTimes(120, "", "{type: url-rewrite, config: {from: '(.*.*.*.*.*)z', to: b}}"), words[:16_000],
			""},
		"made pattern": {ruleTimes(10, "", `{type: url-rewrite, config: {from: '`+strings.Repeat(`\pL`, 300)+
			`${req.method}', to: b}}`), "/", ""},
		"list as key": {ruleTimes(16, "",
			"{type: rate-limit, config: {name: a, capacity: 9, rate: 1s, bucket_key: "+
				"[\"req.url.query_params['a']\"]}}"),
			"/", strings.Repeat("a&", 9000)},
		"made header": {ruleTimes(120, "", `{type: add-headers, config: {headers: {a: "${req.url.path}"}}}`), words,
			""},
		"made again": {ruleTimes(120, "!('x' in req.url.query_params)", addHeader), "/", strings.Repeat("a&", 9000)},
	}
}

// TestCost_AdmitsOrdinaryRequest checks that ordinary policies are far from the limit with ordinary
// requests, also when the URL is long.
func TestCost_AdmitsOrdinaryRequest(t *testing.T) {
	t.Parallel()
	const doc = `
on_http_request:
- expressions:
  - "req.user_agent.matches('(?i)(bot|crawler|spider|slurp|curl|wget|python-requests|go-http-client|java)')"
  actions: [{type: custom-response, config: {status_code: 403}}]
- expressions:
  - "req.url.path.matches('^/api/v[0-9]+/(users|orders|items)/[0-9a-f-]+$')"
  - "req.method in ['GET', 'HEAD']"
  actions: [{type: url-rewrite, config: {from: '^(https?://[^/]+)/api/v[0-9]+/(.*)$', to: '$1/$2'}}]
- expressions: ["req.headers.exists(h, h.startsWith('x-debug-'))", "req.url.contains('..')"]
  actions: [{type: deny}]
- expressions: ["conn.client_ip.inCidrRange('10.0.0.0/8')"]
  actions: [{type: deny}]
- actions: [{type: url-rewrite, config: {from: '/+', to: /}}]
`
	p := compile(t, strings.ReplaceAll(doc, "conn.client_ip.inCidrRange(", "inCidrRange(conn.client_ip, "))
	r := httptest.NewRequest("GET", "/api/v1/files/"+strings.Repeat("a/b//c/", 300)+"?"+strings.Repeat("q=1&", 200),
		nil)
	for i := range 40 {
		r.Header.Set(fmt.Sprintf("H-%d", i), strings.Repeat("x", 50))
	}
	r.Header.Set("User-Agent",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36")
	if res := do(t, p, fullConn(), r); res.StatusCode != 200 {
		t.Errorf("status %d: %s", res.StatusCode, body(t, res))
	}
}

const slowPattern = "req.url.path.matches('(.*a.*b.*c.*d.*e.*f){8}z')"

func longRequest() *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.URL.Path = "/" + strings.Repeat("abcdefghi/", 6000)
	return r
}

// TestCost_SkipsNoRule checks that a request that is too costly is not let through with the rules
// that it has not paid for left out.
func TestCost_SkipsNoRule(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"{type: deny}", addHeader,
		"{type: forward-internal, config: {url: 'http://a.internal'}}"} {
		p := compile(t, onRequest(slowPattern, action))
		called := false
		w := httptest.NewRecorder()
		p.ServeHTTP(w, longRequest(), fullConn(),
			forwardFunc(func(http.ResponseWriter, *http.Request, Target) { called = true }))
		if w.Code != 500 || called {
			t.Errorf("%s: status %d, forwarded %v", action, w.Code, called)
		}
	}
	p := compile(t, onRequest("req.method == 'GET'", "{type: deny}")+strings.TrimPrefix(
		onRequest(slowPattern, addHeader),
		"on_http_request:\n"))
	if res := do(t, p, fullConn(), longRequest()); res.StatusCode != 403 {
		t.Errorf("a rule before the costly one: status %d", res.StatusCode)
	}
}

// TestCost_CountsResponse checks that the response goes on with the steps that its request has
// left, and is replaced when they do not suffice.
func TestCost_CountsResponse(t *testing.T) {
	t.Parallel()
	// takes about 0.6 million steps with making the variables
	const half = "size(req.url.path) + size(req.url.raw_path) > 0"
	request := "on_http_request:\n- expressions: [\"" + half + "\"]\n  actions: [" + addHeader + "]\n"
	response := "on_http_response:\n- expressions: [\"" + half + "\"]\n  actions: [" + addHeader + "]\n"
	for doc, want := range map[string]int{request: 200, response: 200, request + response: 500} {
		res := do(t, compile(t, doc), fullConn(), longRequest())
		if res.StatusCode != want {
			t.Errorf("status %d, want %d, of\n%s", res.StatusCode, want, doc)
		}
		if text := body(t, res); want == 500 && (res.Header.Get("Upstream") != "" || strings.Contains(text, "host=") ||
			res.Header.Get(account.CodeHeader) != string(account.CodePolicyCost)) {
			t.Errorf("the upstream's response is still there: %v %.200s", res.Header, text)
		}
	}
}

func TestCost_DeniesConnection(t *testing.T) {
	t.Parallel()
	doc := "on_tcp_connect:\n- expressions: [\"conn.pod.name.matches('(.*a.*b.*c.*d.*e.*f){8}z')\"]\n  actions: " +
		"[{type: " +
		"forward-internal, config: {url: 'tcp://a.internal:1'}}]\n"
	c := fullConn()
	c.Pod.Name = strings.Repeat("abcdef", 2000)
	if v := compile(t, doc, Options{Scheme: "tcp"}).Connect(t.Context(), c); !v.Deny || v.Rule != "on_tcp_connect[0]" {
		t.Errorf("%+v", v)
	}
}

// costlyRules are the rules that a CostObserver was told of.
type costlyRules []string

func (c *costlyRules) CostExceeded(rule string) { *c = append(*c, rule) }

func TestCost_ReportsRuleOnceAMinute(t *testing.T) {
	t.Parallel()
	now := at
	var rules costlyRules
	o := Options{Clock: func() time.Time { return now }, Costs: &rules}
	p := compile(t, onRequest("req.method == 'GET'", addHeader)+strings.TrimPrefix(onRequest(slowPattern, addHeader),
		"on_http_request:\n"), o)
	for range 3 {
		do(t, p, fullConn(), longRequest())
		do(t, p, fullConn(), longRequest())
		now = now.Add(40 * time.Second)
	}
	if fmt.Sprint(rules) != "[on_http_request[1] on_http_request[1]]" {
		t.Errorf("reported %v", rules)
	}
}

func TestPattern_IsQuadratic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"_": false, "/+": false, "/users/([0-9]+)": false, "a|b*": false, "(abc)+?": false, "x{2,5}y": false,
		"^https://a/.*": false,
		".*z|a":         true, "(a*b)*": true, "a*b": true, "^https?://[^/]+/(.*)$": true, "x{2,}y": true,
	} {
		if p, err := compilePattern(text); err != nil || p.quadratic != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
}

// TestCost_BoundsPatternsOfDocument checks that setting a document costs a bounded time, whatever
// patterns its aliases repeat: the rest of them is not compiled.
func TestCost_BoundsPatternsOfDocument(t *testing.T) {
	t.Parallel()
	classes := strings.Repeat(`\pL`, 100)
	rewrite := "on_http_request:\n- actions: [&a {type: url-rewrite, config: {from: '" + classes +
		"%s', to: '$0'}}]\n" +
		strings.Repeat("- actions: ["+strings.Repeat("*a, ", 15)+"*a]\n", 20)
	for name, doc := range map[string]string{
		"fixed": fmt.Sprintf(rewrite, ""),
		"expressions": "on_http_request:\n- expressions: [&a \"req.url.path.matches('" + strings.ReplaceAll(classes,
			`\`,
			`\\\\`) +
			"')\"]\n  actions: [{type: deny}]\n" +
			strings.Repeat("- expressions: [*a, *a, *a, *a]\n  actions: [{type: deny}]\n",
				100),
	} {
		_, problems := Check(doc, Options{})
		if len(problems) != 1 || !strings.Contains(problems[0].Msg, "too much together") {
			t.Errorf("%s: %v", name, problems)
		}
	}
}
