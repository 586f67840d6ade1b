// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/login/oidc/oidctest"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/testenv/wait"
)

// keepRecorder stores what records the traffic of a service.
func keepRecorder(to **traffic.Recorder) func(*service.Options) {
	return func(o *service.Options) { o.SetOnTraffic(func(r *traffic.Recorder) { *to = r }) }
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

// TestTraffic_OfReplicas calls an endpoint through one replica, and reads the traffic with another.
func TestTraffic_OfReplicas(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	var recorder *traffic.Recorder
	one, two := g.start(keepRecorder(&recorder)), g.start()
	awaitPeers(1, one, two)
	_, bound := bindHello(one)
	two.StartForwarder().Get(bound)
	one.StartForwarder().Get(bound)
	account := one.Tenant().Account
	var recent []traffic.Request
	var c traffic.Coverage
	wait.Until(t, "requests of both replicas", func() bool {
		recent, c = recorder.Recent(t.Context(), account, bound.EndpointID, false, 10)
		return len(recent) == 2
	})
	if len(c.Missing) != 0 || c.Complete.Before(c.Since) || recent[0].Replica == recent[1].Replica ||
		recent[0].Replica == "" {
		t.Errorf("%+v, %+v", recent, c)
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil || strings.Contains(string(b), "planted") || strings.Contains(string(b), oidctest.ClientSecret) {
		t.Errorf("%s, %v", b, err)
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
