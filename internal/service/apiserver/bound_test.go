// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// admitParts admits endpoints whose URL holds one of the selectors' texts.
func admitParts(o *apiserver.Options) {
	o.MatchSelectors = func(selectors []string) (func(*account.Endpoint) bool, error) {
		if i := slices.Index(selectors, "("); i >= 0 {
			return nil, account.Invalid(fmt.Sprintf("binding.endpoint_selectors[%d]", i), "(", "does not compile")
		}
		return func(e *account.Endpoint) bool {
			return len(selectors) == 0 || slices.ContainsFunc(selectors, func(s string) bool {
				return strings.Contains(e.URL, s)
			})
		}, nil
	}
}

func (a *api) operatorWith(key, binding string) string {
	a.t.Helper()
	return into[account.Operator](a.do("POST", "/kubernetes_operators", key,
		`{"enabled_features":["bindings"],"binding":`+binding+`}`).want(201)).ID
}

// bound follows the pages of an operator's endpoints.
func (a *api) bound(key, operator, query string) (urls []string) {
	a.t.Helper()
	at := "/kubernetes_operators/" + operator + "/bound_endpoints"
	for path := at + query; path != ""; {
		got := a.do("GET", path, key, "").want(200)
		page := into[endpointPage](got)
		storetest.Equal(a.t, "uri", page.URI, base+at)
		for _, e := range page.Endpoints {
			storetest.Equal(a.t, "uri of an endpoint", e.URI, base+"/endpoints/"+e.ID)
			urls = append(urls, e.URL)
		}
		if path = ""; page.NextPageURI != nil {
			path = strings.TrimPrefix(*page.NextPageURI, base)
		}
	}
	return urls
}

func TestBoundEndpoints_MatchSelectors(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	for i := range 7 {
		a.Clock.Step(time.Millisecond)
		a.Bind(session, fmt.Sprintf("http://e%d.%s", i, []string{"demo", "prod"}[i%2]))
	}
	odd := a.operatorWith(a.admin, `{"endpoint_selectors":["prod"]}`)
	for _, query := range []string{"", "?limit=1", "?limit=2", "?limit=3"} {
		storetest.Equal(t, "of one selector"+query, fmt.Sprint(a.bound(a.admin, odd, query)),
			"[http://e5.prod http://e3.prod http://e1.prod]")
	}
	storetest.Equal(t, "of two",
		fmt.Sprint(a.bound(a.admin, a.operatorWith(a.admin, `{"endpoint_selectors":["e0","e5"]}`),
			"")), "[http://e5.prod http://e0.demo]")
	storetest.Equal(t, "of none", len(a.bound(a.admin, a.operatorWith(a.admin, `{}`), "?limit=4")), 7)
	storetest.Equal(t, "without a binding", len(a.bound(a.admin, a.operatorWith(a.admin, `null`), "")), 0)
	idle := into[account.Operator](a.do("POST", "/kubernetes_operators", a.admin, `{"binding":{}}`).want(201)).ID
	storetest.Equal(t, "without the feature", len(a.bound(a.admin, idle, "")), 0)
	a.get("/kubernetes_operators/"+odd+"/bound_endpoints?binding=kubernetes").want(400, account.CodeInvalid)
	a.get("/kubernetes_operators/op-none/bound_endpoints").want(404, account.CodeNotFound)
}

func TestBoundEndpoints_HideOtherOperators(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	other, _ := a.NewAccount("other")
	a.Bind(a.Session(), "http://mine.demo")
	mine, stranger := a.key(a.AccountID, account.ScopeOperator), a.key(a.AccountID, account.ScopeOperator)
	o := a.operatorWith(mine, `{}`)
	storetest.Equal(t, "own", len(a.bound(mine, o, "")), 1)
	storetest.Equal(t, "a reader's", len(a.bound(a.key(a.AccountID, account.ScopeRead), o, "")), 1)
	for _, key := range []string{stranger, a.key(other, account.ScopeAdmin)} {
		a.do("GET", "/kubernetes_operators/"+o+"/bound_endpoints", key, "").want(404, account.CodeNotFound)
	}
	theirs := a.key(other, account.ScopeAdmin)
	storetest.Equal(t, "another account's operator", len(a.bound(theirs, a.operatorWith(theirs, `{}`), "")), 0)
}

func TestBoundEndpoints_SlowSelectorShortensPages(t *testing.T) {
	t.Parallel()
	var slow atomic.Int64
	a := newAPI(t, func(o *apiserver.Options) {
		o.Clock = func() time.Time { return time.Now().Add(time.Duration(slow.Load())) }
		o.MatchSelectors = func([]string) (func(*account.Endpoint) bool, error) {
			return func(e *account.Endpoint) bool {
				if e.URL == "http://e2.demo" {
					slow.Add(int64(1100 * time.Millisecond)) // what a slow expression takes
				}
				return true
			}, nil
		}
	})
	session := a.Session()
	for i := range 3 {
		a.Clock.Step(time.Millisecond)
		a.Bind(session, fmt.Sprintf("http://e%d.demo", i))
	}
	o := a.operatorWith(a.admin, `{}`)
	first := into[endpointPage](a.get("/kubernetes_operators/" + o + "/bound_endpoints").want(200))
	if n := len(first.Endpoints); n != 1 || first.NextPageURI == nil {
		t.Errorf("the first page has %d endpoints, next %v", n, first.NextPageURI)
	}
	storetest.Equal(t, "all pages", fmt.Sprint(a.bound(a.admin, o, "")),
		"[http://e2.demo http://e1.demo http://e0.demo]")
}

func TestBoundEndpoints_ReportStoreOutage(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Store = brokenEndpoints{o.Store, errors.New("secret")} })
	a.get("/kubernetes_operators/"+a.operatorWith(a.admin, `{}`)+"/bound_endpoints").want(500, account.CodeInternal)
}

func TestOperators_RefuseInvalidSelectors(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	good := a.operatorWith(a.admin, `{"endpoint_selectors":["demo"]}`)
	for _, r := range [][2]string{{"POST", ""}, {"PATCH", "/" + good}} {
		send := func(body string) *answer { return a.do(r[0], "/kubernetes_operators"+r[1], a.admin, body) }
		got := send(`{"binding":{"endpoint_selectors":["demo","("]}}`).want(400, account.CodeInvalid).rules()
		storetest.Equal(t, r[0]+" rule", got["binding.endpoint_selectors[1]"], "does not compile")
		long := strings.Repeat("x", account.MaxRegion+1)
		got = send(`{"colour":1,"region":"` + long + `","binding":{"endpoint_selectors":["("]}}`).want(400).rules()
		if len(got) != 3 || got["binding.endpoint_selectors[0]"] == "" || got["region"] == "" || got["colour"] == "" {
			t.Errorf("%s: rules %v, want three", r[0], got)
		}
		send(`{"binding":{"endpoint_selectors":[`+strings.Repeat(`"(",`, 16)+`"("]}}`).want(400, account.CodeInvalid)
	}
	kept := into[account.Operator](a.get("/kubernetes_operators/" + good).want(200))
	storetest.Equal(t, "selectors after refused patches", fmt.Sprint(kept.Binding.EndpointSelectors), "[demo]")
}

func TestOperators_AcceptPublicAPIFeatures(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.Bind(a.Session(), "http://api.demo")
	made := into[account.Operator](a.do("POST", "/kubernetes_operators", a.admin,
		`{"enabled_features":["Ingress","gateway","Bindings"],"binding":{"csr":"x"}}`).want(201))
	storetest.Equal(t, "features", fmt.Sprint(made.EnabledFeatures), "[ingress gateway bindings]")
	storetest.Equal(t, "bound", fmt.Sprint(a.bound(a.admin, made.ID, "")), "[http://api.demo]")
	patched := into[account.Operator](a.do("PATCH", "/kubernetes_operators/"+made.ID, a.admin,
		`{"enabled_features":["INGRESS"]}`).want(200))
	storetest.Equal(t, "patched", fmt.Sprint(patched.EnabledFeatures), "[ingress]")
}
