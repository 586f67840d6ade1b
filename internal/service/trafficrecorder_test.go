// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// keepRecorder stores what records the traffic of a service.
func keepRecorder(to **traffic.Recorder) func(*service.Options) {
	return func(o *service.Options) {
		*to = traffic.New(traffic.Options{MaxOwn: o.MetricsSeries})
		o.SetRecorder(*to)
	}
}

// TestTraffic_IsRecorded sends requests with planted secrets through a whole service, and reads what
// it has recorded of them.
func TestTraffic_IsRecorded(t *testing.T) {
	t.Parallel()
	upstream := servicetest.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "sid=planted-set-cookie")
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte("planted-answer"))
	})
	var recorder *traffic.Recorder
	p := servicetest.NewPathTo(t, servicetest.Start(t, keepRecorder(&recorder)), upstream)
	account := p.Server.Tenant().Account
	for _, path := range []string{"/fine?token=planted-query", "/broken?code=planted-query"} {
		res := p.Forwarder.Do(p.Transport, "POST", "http://hello.demo"+path, strings.NewReader("planted-body"),
			http.Header{"Authorization": {"Bearer planted-header"}, "Cookie": {"sid=planted-cookie"}})
		servicetest.ReadAll(t, res.Body)
	}
	var recent []traffic.Request
	wait.Until(t, "two recent requests", func() bool {
		recent, _ = recorder.Recent(t.Context(), account, p.Bound.EndpointID, false, 10)
		return len(recent) == 2
	})
	if q := recent[0]; q.Method != "POST" || q.Path != "/broken" || q.Status != 500 || q.BytesIn != 12 ||
		q.BytesOut != 14 || q.Duration <= 0 || q.Proto != "HTTP/1.1" {
		t.Errorf("%+v", q)
	}
	failed, _ := recorder.Recent(t.Context(), account, p.Bound.EndpointID, true, 10)
	if len(failed) != 1 || failed[0].Path != "/broken" {
		t.Errorf("failing: %+v", failed)
	}
	key := traffic.Key(p.Bound.EndpointID)
	var sum traffic.Point
	wait.Until(t, "a step with both requests", func() bool {
		s, _ := recorder.Series(t.Context(), account, key, traffic.Hour)
		sum = traffic.Point{}
		for _, of := range s.Points {
			sum.Requests += of.Requests
			sum.Failed += of.Failed
			sum.BytesIn += of.BytesIn
		}
		return sum.Requests == 2
	})
	if sum.Failed != 1 || sum.BytesIn != 24 {
		t.Errorf("%+v", sum)
	}
	rates, _ := recorder.Rates(t.Context(), account)
	b, err := json.Marshal([]any{recent, failed, rates})
	if err != nil || strings.Contains(string(b), "planted") {
		t.Errorf("%s, %v", b, err)
	}
}

// TestTraffic_OfReplicas calls an endpoint through two replicas, with planted secrets, and reads the
// sums with one of them. The secrets are in no record, answer to a peer, metric or log, and another
// account gets nothing.
func TestTraffic_OfReplicas(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	var recorder, other *traffic.Recorder
	one, two := g.start(keepRecorder(&recorder)), g.start(keepRecorder(&other))
	awaitPeers(1, one, two)
	_, bound := bindHello(one)
	sendSecrets(two, bound, 2)
	sendSecrets(one, bound, 3)
	account, key := one.Tenant().Account, traffic.Key(bound.EndpointID)
	sum := func(account string, k traffic.Key) (requests uint64) {
		s, _ := recorder.Series(t.Context(), account, k, traffic.Hour)
		for _, of := range s.Points {
			requests += of.Requests
		}
		return requests
	}
	var recent []traffic.Request
	var c traffic.Coverage
	wait.Until(t, "the sums and requests of both replicas, which have a second to answer", func() bool {
		recent, c = recorder.Recent(t.Context(), account, bound.EndpointID, false, 10)
		return len(c.Missing) == 0 && sum(account, key) == 5 && sum(account, traffic.OfAccount) == 5
	})
	replicas := map[string]int{}
	for _, q := range recent {
		replicas[q.Replica]++
	}
	if len(c.Missing) != 0 || c.Complete.Before(c.Since) || len(recent) != 5 || len(replicas) != 2 ||
		replicas[""] != 0 {
		t.Errorf("%+v, %+v", recent, c)
	}
	if got, _ := recorder.Recent(t.Context(), "ac-other", bound.EndpointID, false, 10); len(got) != 0 ||
		sum("ac-other", key) != 0 {
		t.Errorf("another account gets %+v", got)
	}
	texts := map[string]string{"metrics of one": one.ScrapeMetrics(), "metrics of two": two.ScrapeMetrics(),
		"log of one": one.Log.String(), "log of two": two.Log.String()}
	for _, q := range []string{`"recent":{"endpoint_id":%q,"limit":99}`, `"series":{"key":%q,"last":9000000000}`,
		`"rates":{"last":9000000000}, "x":%q`, `"logins":{"limit":99}, "x":%q`} {
		question := []byte(fmt.Sprintf(`{"account_id":%q,`+q+"}", account, bound.EndpointID))
		for name, r := range map[string]*traffic.Recorder{"one": recorder, "two": other} {
			b, err := r.Answer(question)
			if err != nil {
				t.Errorf("%s: %v", question, err)
			}
			texts[fmt.Sprintf("%s's answer to %s", name, question)] = string(b)
		}
	}
	for name, text := range texts {
		if at := strings.Index(text, "planted"); at >= 0 || text == "" {
			t.Errorf("%s: %.200s", name, text[max(at-100, 0):])
		}
	}
}

// sendSecrets sends so many requests with secrets wherever a request may have some.
func sendSecrets(r *servicetest.Server, bound tunnel.Bound, n int) {
	r.T.Helper()
	f := r.StartForwarder()
	tr := f.Transport(bound)
	defer tr.CloseIdleConnections()
	for range n {
		res := f.Do(tr, "POST", "http://hello.demo/x?token=planted-query", strings.NewReader("planted-body"),
			http.Header{"Authorization": {"Bearer planted-header"}, "Cookie": {"sid=planted-cookie"},
				"User-Agent": {"planted-agent"}, "Referer": {"http://planted-referer"}})
		servicetest.ReadAll(r.T, res.Body)
	}
}

// TestLoginFailures_AreRecorded lets the provider refuse a login and a token, and takes a callback
// without a login.
func TestLoginFailures_AreRecorded(t *testing.T) {
	t.Parallel()
	var recorder *traffic.Recorder
	w := startLogins(t, keepRecorder(&recorder))
	w.protect("https://app.example.com", w.policy(""), mirror)
	account := w.Tenant().Account
	refuse := func() {
		b := w.newLoginBrowser()
		start := w.request(b, "GET", "https://app.example.com/")
		to, err := url.Parse(start.header.Get("Location"))
		must.Succeed(t, err)
		q := url.Values{"state": {to.Query().Get("state")}, "iss": {w.idp.URL}, "error": {"access_denied"},
			"error_description": {"AADSTS50105: not assigned <b> id_token=planted-token"}}
		w.request(b, "GET", strings.SplitN(to.Query().Get("redirect_uri"), "?", 2)[0]+"?"+q.Encode())
	}
	refuse()
	refuse()
	w.request(w.newLoginBrowser(), "GET", "https://app.example.com/_fairlead/oidc/callback?code=planted-code&state=x")
	w.idp.Token = func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.WriteHeader(http.StatusInternalServerError)
		return true
	}
	w.logIn(w.newLoginBrowser(), "https://app.example.com/")
	got, _ := recorder.LoginFailures(t.Context(), account, 10)
	b, err := json.Marshal(got)
	must.Succeed(t, err)
	texts := map[string]string{"records": string(b), "log": w.Log.String(), "metrics": w.ScrapeMetrics()}
	for name, text := range texts {
		if strings.Contains(text, "planted") || strings.Contains(text, oidctest.ClientSecret) {
			t.Errorf("secrets in the %s: %s", name, text)
		}
	}
	counts := map[string]int{}
	for _, f := range got {
		if f.Step != "callback" || f.EndpointURL != "https://app.example.com" || f.Shown == "" || f.Reason == "" ||
			f.Provider == "" || f.AuthID == "" {
			t.Errorf("%+v", f)
		}
		for _, part := range []string{"AADSTS50105: not assigned", "begun in this browser", "status 500"} {
			if strings.Contains(f.Reason, part) {
				counts[part] = f.Count
			}
		}
	}
	if counts["AADSTS50105: not assigned"] != 2 || counts["begun in this browser"] != 1 || counts["status 500"] != 1 {
		t.Errorf("%v: %s", counts, b)
	}
}
