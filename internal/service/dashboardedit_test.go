// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

var (
	formInput  = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)
	formPolicy = regexp.MustCompile(`(?s)<textarea id="traffic_policy"[^>]*>\n(.*?)</textarea>`)
)

// editForm returns the hidden inputs and the policy of the form of an endpoint.
func editForm(page string) url.Values {
	form := url.Values{}
	for _, m := range formInput.FindAllStringSubmatch(page, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	if m := formPolicy.FindStringSubmatch(page); m != nil {
		form.Set("traffic_policy", html.UnescapeString(m[1]))
	}
	return form
}

// TestDashboard_EditsCloudEndpoints makes and changes an endpoint through the forms, with a store, a
// key and policies that are real. No page shows the secret of its policy.
func TestDashboard_EditsCloudEndpoints(t *testing.T) {
	t.Parallel()
	p := newDashboardBrowser(servicetest.Start(t))
	if status := p.signIn(p.APIKey); status != http.StatusSeeOther {
		t.Fatalf("signing in: %d", status)
	}
	const secret = "planted-secret-in-policy"
	var pages strings.Builder
	request := func(path string, form url.Values) (int, string, string) {
		status, location, page := p.request(path, form)
		pages.WriteString(page)
		return status, location, page
	}
	status, at, page := request("/ui/endpoints/new", url.Values{"step": {"save"}, "binding": {"kubernetes"},
		"url": {"http://shop.demo"}, "traffic_policy": {"on_http_request:\r\n  - actions:\r\n" +
			"      - type: basic-auth\r\n        config:\r\n          credentials: [\"user:" + secret + "\"]\r\n"}})
	if status != http.StatusSeeOther || !strings.HasPrefix(at, "/ui/endpoints/ep-") {
		t.Fatalf("making an endpoint: %d to %q\n%s", status, at, page)
	}
	_, _, page = request(at+"/edit", nil)
	form := editForm(page)
	if !strings.Contains(form.Get("traffic_policy"), "redacted:") {
		t.Fatalf("the form has the policy %q", form.Get("traffic_policy"))
	}
	form.Set("traffic_policy", "# changed\n"+form.Get("traffic_policy"))
	form.Set("step", "review")
	_, _, page = request(at+"/edit", form)
	if !strings.Contains(page, "+ # changed") {
		t.Errorf("the review: %s", page)
	}
	saved := editForm(page)
	saved.Set("step", "save")
	if status, _, page := request(at+"/edit", saved); status != http.StatusSeeOther {
		t.Fatalf("saving: %d\n%s", status, page)
	}
	tenant := p.Tenant()
	e, err := tenant.Store.Endpoint(servicetest.Context(t), tenant.Account, strings.TrimPrefix(at, "/ui/endpoints/"))
	if err != nil || !strings.HasPrefix(e.TrafficPolicy, "# changed\n") || !strings.Contains(e.TrafficPolicy, secret) {
		t.Errorf("saved %+v, %v", e, err)
	}
	// The form of before is of a state that is gone.
	form.Set("traffic_policy", "")
	if status, _, page := request(at+"/edit", form); status != http.StatusConflict ||
		!strings.Contains(page, "Another has saved this cloud endpoint") {
		t.Errorf("an old form: %d", status)
	}
	_, _, page = request("/ui/endpoints/check", url.Values{"id": {e.ID}, "traffic_policy": {"inbound: []"}})
	if !strings.Contains(page, `data-line="1"`) {
		t.Errorf("checking what is typed: %s", page)
	}
	request(at, nil)
	if _, _, page := request("/ui/events?type=endpoint.updated", nil); strings.Count(page, `data-key="ev-`) != 1 {
		t.Error("the change is not in the events, or twice")
	}
	if status, _, _ := request(at+"/delete", url.Values{}); status != http.StatusSeeOther {
		t.Errorf("deleting: %d", status)
	}
	if strings.Contains(pages.String(), secret) {
		t.Error("a page shows the secret")
	}
}
