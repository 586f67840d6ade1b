// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// checkKeys are the secrets that the table uses.
type checkKeys struct{ admin, reader, operator, token, expired string }

// check is a request, by default GET /endpoints with the admin key, and its answer.
type check struct {
	method, path, key, body string
	change                  func(http.Header)
	status                  int
	code                    account.Code
}

func checks(k checkKeys) map[string]check {
	version := func(values ...string) func(http.Header) {
		return func(h http.Header) { h["Service-Version"] = values }
	}
	return map[string]check{
		"no key": {change: func(h http.Header) {
			h.Del("Authorization")
		}, status: 401, code: account.CodeNoCredential},
		"no bearer": {change: func(h http.Header) {
			h.Set("Authorization", "Basic eDp5")
		}, status: 401, code: account.CodeNoCredential},
		"empty bearer": {key: " ", status: 401, code: account.CodeNoCredential},
		"unknown key before all else": {key: "flk_x", path: "/none", change: version(), status: 401,
			code: account.CodeUnknownCredential},
		"an authtoken":                {key: k.token, status: 401, code: account.CodeWrongKind},
		"an expired key":              {key: k.expired, status: 401, code: account.CodeExpired},
		"no version before the route": {path: "/none", change: version(), status: 400, code: account.CodeVersionHeader},
		"wrong version":               {change: version("3"), status: 400, code: account.CodeVersionHeader},
		"conflicting versions":        {change: version("2", "3"), status: 400, code: account.CodeVersionHeader},
		"conflict with another name": {change: func(h http.Header) {
			h.Set("Other-Version", "1")
		}, status: 400, code: account.CodeVersionHeader},
		"agreeing versions": {change: func(h http.Header) { h.Set("Other-Version", "2") }, status: 200},
		"another name alone": {change: func(h http.Header) {
			h.Del("Service-Version")
			h.Set("Other-Version", "2")
		}, status: 200},
		"lower-case bearer": {change: func(h http.Header) {
			h.Set("Authorization", "bearer "+k.admin)
		}, status: 200},
		"scope before a wrong method":   {key: k.reader, method: "DELETE", status: 403, code: account.CodeScope},
		"scope before an unknown route": {key: k.operator, path: "/none", status: 403, code: account.CodeScope},
		"a reader may not register": {key: k.reader, method: "POST", path: "/kubernetes_operators", body: "{}",
			status: 403, code: account.CodeScope},
		"an operator sees no sessions": {key: k.operator, path: "/tunnel_sessions", status: 403,
			code: account.CodeScope},
		"an operator reads endpoints":      {key: k.operator, status: 200},
		"a reader reads sessions":          {key: k.reader, path: "/tunnel_sessions", status: 200},
		"unknown route":                    {path: "/endpoint", status: 404, code: account.CodeNoRoute},
		"the root":                         {path: "/", status: 404, code: account.CodeNoRoute},
		"a trailing slash":                 {path: "/endpoints/", status: 404, code: account.CodeNoRoute},
		"a double slash is no redirect":    {path: "//endpoints", status: 404, code: account.CodeNoRoute},
		"dots are no redirect":             {path: "/x/../endpoints", status: 404, code: account.CodeNoRoute},
		"wrong method before a wrong body": {method: "PUT", body: "{", status: 405, code: account.CodeMethod},
		"another method": {method: "PURGE", path: "/endpoints/x", status: 405,
			code: account.CodeMethod},
		"unknown id":         {path: "/endpoints/ep-x", status: 404, code: account.CodeNotFound},
		"an id with a slash": {path: "/endpoints/ep%2Fx", status: 404, code: account.CodeNotFound},
		"an id with a NUL":   {path: "/endpoints/ep%00x", status: 404, code: account.CodeNotFound},
	}
}

func TestRoute_ChecksInOrder(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.VersionHeaders = []string{"Other-Version"} })
	k := checkKeys{admin: a.admin, reader: a.key(a.AccountID, account.ScopeRead),
		operator: a.key(a.AccountID, account.ScopeOperator)}
	var err error
	_, k.token, err = a.Store.IssueAuthtoken(t.Context(), a.AccountID, "", nil)
	storetest.Must(t, err)
	soon := a.Clock.Now().Add(time.Minute)
	_, k.expired, err = a.Store.IssueAPIKey(t.Context(), a.AccountID, "", nil, &soon)
	storetest.Must(t, err)
	a.Clock.Step(time.Hour)
	for name, c := range checks(k) {
		t.Run(name, func(t *testing.T) {
			if c.method == "" {
				c.method = "GET"
			}
			if c.path == "" {
				c.path = "/endpoints"
			}
			if c.key == "" {
				c.key = a.admin
			}
			req := a.request(c.method, c.path, c.key, c.body)
			if c.change != nil {
				c.change(req.Header)
			}
			got := a.send(req)
			if got.want(c.status); c.code != "" {
				got.want(c.status, c.code)
			}
			if allow := got.header.Get("Allow"); c.status == 405 && !slices.Contains(strings.Split(allow, ", "),
				"GET") {
				t.Errorf("Allow: %q", allow)
			}
			if c.status == 401 && got.header.Get("WWW-Authenticate") == "" {
				t.Error("a 401 without WWW-Authenticate")
			}
		})
	}
	if allow := a.do("PUT", "/kubernetes_operators/x", a.admin, "").
		want(405).header.Get("Allow"); allow != "DELETE, GET, PATCH" {
		t.Errorf("Allow: %q", allow)
	}
}

func TestRoute_LimitsRequestsPerKey(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	a := newAPI(t, func(o *apiserver.Options) { o.Clock, o.Limits.Rate, o.Limits.Burst = clock.Now, 2, 3 })
	for range 3 {
		a.get("/endpoints").want(200)
	}
	refused := a.get("/endpoints").want(429, account.CodeTooMany)
	if after := refused.header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After: %q", after)
	}
	a.do("GET", "/endpoints", a.key(a.AccountID, account.ScopeRead), "").want(200)
	clock.Step(500 * time.Millisecond)
	a.get("/endpoints").want(200)
	a.get("/endpoints").want(429)
	clock.Step(time.Hour)
	for range 3 {
		a.get("/endpoints").want(200)
	}
	a.get("/endpoints").want(429)
}

func TestLog_HasOperationIDAndNoSecrets(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	op := a.do("POST", "/kubernetes_operators/"+a.admin, a.admin, "").want(405).header.Get("Operation-Id")
	a.get("/endpoints?api_key=" + a.admin).want(400)
	a.get("/endpoints/" + a.admin).want(404)
	a.do("GET", "/endpoints", "flk_guess", "").want(401)
	a.do("POST", "/kubernetes_operators", a.admin, `{"metadata":"`+a.admin+`","x":1}`).want(400)
	text := a.log.String()
	if strings.Count(text, "operation_id="+op) != 1 {
		t.Errorf("operation %s is not in one line of the log:\n%s", op, text)
	}
	for _, secret := range []string{a.admin, "flk_guess", "api_key"} {
		if strings.Contains(text, secret) {
			t.Errorf("the log shows %q", secret)
		}
	}
}

// brokenEndpoints is a store that does not answer, or panics.
type brokenEndpoints struct {
	apiserver.Store
	err error
}

func (b brokenEndpoints) ListEndpoints(
	_ context.Context, _ string, _ account.EndpointFilter, _ account.Page,
) (*account.EndpointPage, error) {
	if b.err == nil {
		panic("secret of the panic")
	}
	return nil, b.err
}

func TestErrors_HideCauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		code   account.Code
	}{
		"panic":       {nil, 500, account.CodeInternal},
		"plain error": {errors.New("secret of the plain error"), 500, account.CodeInternal},
		"unavailable": {&account.Error{Code: account.CodeUnavailable, Msg: "the store is not available",
			Cause: errors.New("secret of the store")}, 503, account.CodeUnavailable},
		"wrapped": {fmt.Errorf("secret: %w", account.Errorf(account.CodeNotFound, "no")), 404, account.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, func(o *apiserver.Options) { o.Store = brokenEndpoints{o.Store, c.err} })
			got := a.get("/endpoints").want(c.status, c.code)
			if strings.Contains(got.text, "secret") {
				t.Errorf("the answer shows the cause: %s", got.text)
			}
			if c.status >= 500 && !strings.Contains(a.log.String(), "secret") {
				t.Errorf("the log does not show the cause: %s", a.log)
			}
			if c.status == 503 && got.header.Get("Retry-After") == "" {
				t.Error("a 503 without Retry-After")
			}
		})
	}
}
