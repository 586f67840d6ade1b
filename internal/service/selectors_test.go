// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestServer_ListsBoundEndpointsBySelector: the service evaluates selectors as the operator does.
func TestServer_ListsBoundEndpointsBySelector(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	for _, url := range []string{"http://api.demo", "tcp://db.prod:5432"} {
		servicetest.Receive(t, r.StartAgent(tunnel.Bind{URL: url}, "").Bound, "bind")
	}
	for _, c := range []struct {
		selectors []string
		want      string
	}{
		{nil, "http://api.demo tcp://db.prod:5432"},
		{[]string{""}, "http://api.demo tcp://db.prod:5432"},
		{[]string{"ep.namespace == 'prod' && ep.port > 5000"}, "tcp://db.prod:5432"},
		{[]string{"ep.service == 'none'", "ep.scheme == 'http' && ep.status == 'online'"}, "http://api.demo"},
		// the second cannot be evaluated for port 80
		{[]string{"ep.hostname.matches('^(a+)+$')", "10000 / (ep.port - 80) > 0"}, "tcp://db.prod:5432"},
		{[]string{`endpoint.url.contains("prod")`}, "tcp://db.prod:5432"},
		{[]string{"false"}, ""},
	} {
		var o account.Operator
		r.CreateObject("/kubernetes_operators", map[string]any{"enabled_features": []string{"bindings"},
			"binding": map[string]any{"endpoint_selectors": c.selectors}}, &o)
		var got struct{ Endpoints []account.Endpoint }
		if status := r.CallAPI("GET", "/kubernetes_operators/"+o.ID+"/bound_endpoints", nil,
			&got); status != http.StatusOK {
			t.Errorf("%v: status %d", c.selectors, status)
		}
		var urls []string
		for _, e := range got.Endpoints {
			urls = append(urls, e.URL)
		}
		slices.Sort(urls)
		if text := strings.Join(urls, " "); text != c.want {
			t.Errorf("%v: %s, want %s", c.selectors, text, c.want)
		}
	}
	var refused struct{ Errors []account.FieldError }
	status := r.CallAPI("POST", "/kubernetes_operators", map[string]any{"enabled_features": []string{"bindings"},
		"binding": map[string]any{"endpoint_selectors": []string{"true", "ep.size > 1"}}}, &refused)
	if status != http.StatusBadRequest || len(refused.Errors) != 1 {
		t.Fatalf("a selector that does not compile: status %d, %+v", status, refused)
	}
	got := refused.Errors[0]
	if got.Field != "binding.endpoint_selectors[1]" || got.Value != "ep.size > 1" ||
		!strings.Contains(got.Rule, "line 1") || !strings.Contains(got.Rule, "such as ep.") {
		t.Errorf("refused with %+v", got)
	}
}
