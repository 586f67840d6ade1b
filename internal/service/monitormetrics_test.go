// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// gaugeSeconds returns the value of a metric that is a time; zero while there is none.
func gaugeSeconds(r *servicetest.Server, series string) time.Time {
	for line := range strings.Lines(r.ScrapeMetrics()) {
		var seconds float64
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			_, _ = fmt.Sscan(rest, &seconds)
			return time.Unix(int64(seconds), 0)
		}
	}
	return time.Time{}
}

func TestMetrics_OfExpiry(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	const expiry = `fairlead_server_certificate_expiry_timestamp_seconds{use="%s"}`
	for use, least := range map[string]time.Duration{"service": 89 * 24 * time.Hour,
		"authority": 9 * 365 * 24 * time.Hour,
		"public":    time.Minute} {
		if left := time.Until(gaugeSeconds(w.Server, fmt.Sprintf(expiry, use))); left < least {
			t.Errorf("the certificate of the use %s ends in %v, want at least %v", use, left, least)
		}
	}
	checkCounted(&servicetest.Path{Server: w.Server}, `fairlead_server_operators{state="active"} 0`,
		`fairlead_server_operators{state="silent"} 0`, `fairlead_server_store_errors_total{operation="write"} 0`)
}

func TestMetrics_OfAPIAndBinds(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(http.ResponseWriter, *http.Request) {})
	p.RequireStatus(http.MethodGet, "/endpoints/ep-none", nil, http.StatusNotFound)
	checkCounted(p, `fairlead_server_binds_total{outcome="accepted"} 1`,
		`fairlead_server_api_requests_total{class="4xx",code="ERR_FL_1050"} 1`)
	s, err := p.Agent.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	if _, err := s.Bind(servicetest.Context(t),
		tunnel.Bind{URL: "https://hello.demo", Binding: "kubernetes"}); err == nil {
		t.Fatal("an impossible URL was bound")
	}
	const refused = `fairlead_server_binds_total{outcome="INVALID"}`
	servicetest.Eventually(t, refused, func() bool { return metric(p.Server, refused) == 1 })
}

// TestMetrics_OfWatchDelay checks that an endpoint is measured that was created while a watch
// waited, and none that an older version brings.
func TestMetrics_OfWatchDelay(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	var list struct {
		Version string `json:"resource_version"`
	}
	r.CallAPI(http.MethodGet, "/endpoints", nil, &list)
	tenant := r.Tenant()
	tenant.Cloud(account.BindingKubernetes, "http://before.demo", "", tenant.Answer(200, "x"))
	res, err := r.NewAPITransport().RoundTrip(
		r.NewAPIRequest(http.MethodGet, "/endpoints?watch=true&resource_version="+list.Version, nil))
	must.Succeed(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	awaitLine := func(part string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), part) {
				return
			}
		}
		t.Fatalf("the watch ended without %s: %v", part, lines.Err())
	}
	awaitLine("before.demo")
	checkCounted(&servicetest.Path{Server: r}, "fairlead_server_watch_delay_seconds_count 0")
	tenant.Cloud(account.BindingKubernetes, "http://after.demo", "", tenant.Answer(200, "x"))
	awaitLine("after.demo")
	checkCounted(&servicetest.Path{Server: r}, "fairlead_server_watch_delay_seconds_count 1")
}
