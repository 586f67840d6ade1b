// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// dashboard is a browser at the dashboard of one server.
type dashboard struct {
	*replica
	client *http.Client
}

// signIn opens the dashboard of the server with an API key.
func (s *replica) signIn(key string) *dashboard {
	s.r.t.Helper()
	config, err := trust.Options{CASHA256: s.r.fingerprint}.ClientConfig()
	must.Succeed(s.r.t, err)
	jar, err := cookiejar.New(nil)
	must.Succeed(s.r.t, err)
	d := &dashboard{s, &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.r.t.Cleanup(d.client.CloseIdleConnections)
	if status, page := d.request("sign-in", url.Values{"key": {key}}); status != http.StatusSeeOther {
		s.r.t.Fatalf("signing in to %s: %d\n%s", s.name, status, page)
	}
	return d
}

// request gets a page, or sends a form.
func (d *dashboard) request(path string, form url.Values) (status int, page string) {
	d.r.t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(d.r.t.Context(), method, "https://"+d.addr+"/ui/"+path,
		strings.NewReader(form.Encode()))
	must.Succeed(d.r.t, err)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := d.client.Do(req)
	must.Succeed(d.r.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	must.Succeed(d.r.t, err)
	return res.StatusCode, string(text)
}

// call sends so many requests to the chain's public endpoint through the server. It fails the test
// unless all are answered.
func (s *replica) call(path string, n int) {
	s.r.t.Helper()
	for range n {
		req, err := http.NewRequestWithContext(s.r.t.Context(), http.MethodGet, "http://"+s.http+path, nil)
		must.Succeed(s.r.t, err)
		req.Host = "web." + domain
		res, err := http.DefaultClient.Do(req)
		must.Succeed(s.r.t, err)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			s.r.t.Fatalf("%s answers %s", s.name, res.Status)
		}
	}
}

// through are the replicas of the recent requests that a page shows.
var through = regexp.MustCompile(`through <code class="id" title="(rp-[^"]+)"`)

// TestReplicas_TrafficOfAll calls an endpoint through two servers, kills one, and looks at the other
// one's dashboard: it has the requests of both, then it names the server that was killed, and when
// that server has left the registry, since when the sums are whole.
func TestReplicas_TrafficOfAll(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2)
	c := r.startChain(-1, -1)
	one, two := r.replicas[0], r.replicas[1]
	d := one.signIn(r.apiKey)
	path := "endpoints/" + c.ids[httpURL] + "/traffic"
	wait.Until(t, "the endpoint being known to both", func() bool {
		status, page := d.request(path, nil)
		return status == http.StatusOK && !strings.Contains(page, "did not answer")
	})
	one.call("/hello", 3)
	two.call("/hello", 4)
	calls := map[string]int{}
	wait.Until(t, "the requests of both", func() bool {
		_, page := d.request(path, nil)
		clear(calls)
		for _, m := range through.FindAllStringSubmatch(page, -1) {
			calls[m[1]]++
		}
		return len(calls) == 2
	})
	var victim string
	for id, n := range calls {
		if n == 4 {
			victim = id
		}
	}
	if n := calls[victim]; n != 4 || !slices.Contains(r.registered(), victim) {
		t.Fatalf("recent requests by replica: %v, registered are %v", calls, r.registered())
	}
	two.askWithoutCertificate()
	r.expectNothingForOthers(path, c.ids[httpURL])
	killed := time.Now()
	two.kill()
	names := fmt.Sprintf("<code>%s</code> did not answer", victim)
	wait.Until(t, "the killed replica being named", func() bool {
		_, page := d.request(path, nil)
		return strings.Contains(page, names)
	})
	took := time.Since(killed)
	if t.Logf("the killed replica is named after %s", took); took > limit(time.Second, 5*time.Second) {
		t.Errorf("the killed replica is named after %s, want at most a second on a quiet machine", took)
	}
	wait.Until(t, "the page naming since when sums are whole", func() bool {
		_, page := d.request(path, nil)
		whole := strings.Contains(page, "the sums lack what went through replicas that")
		if !whole && !strings.Contains(page, names) {
			t.Fatal("the killed replica is left out silently")
		}
		return whole
	})
}

// askWithoutCertificate asks the server for its records as a replica does, without the replicas'
// credential.
func (s *replica) askWithoutCertificate() {
	s.r.t.Helper()
	//nolint:gosec // the answer is what counts
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	for _, scheme := range []string{"https", "http"} {
		res, err := client.Post(scheme+"://"+s.relay+"/traffic", "application/json", strings.NewReader(`{}`))
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				s.r.t.Errorf("%s: a caller without a certificate gets an answer", scheme)
			}
		}
	}
}

// expectNothingForOthers looks for the endpoint's traffic with another account's key.
func (r *rig) expectNothingForOthers(path, endpointID string) {
	r.t.Helper()
	r.run("account", "create", "other")
	key := regexp.MustCompile(`flk_\S+`).FindString(r.run("api-key", "create", "--account", "other"))
	other := r.replicas[0].signIn(key)
	if status, page := other.request(path, nil); status != http.StatusNotFound || strings.Contains(page, "rp-") {
		r.t.Errorf("another account's key gets %d\n%s", status, page)
	}
	if status, page := other.request("traffic", nil); status != http.StatusOK || strings.Contains(page, endpointID) {
		r.t.Errorf("the traffic of another account: %d\n%s", status, page)
	}
}
