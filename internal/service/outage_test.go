// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/frozen"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

const (
	// outageLength is how long requests are sent without a database: longer than any answer is
	// cached while the database answers.
	outageLength = 2500 * time.Millisecond
	// maxOutageLatency is less than any time-out of the store.
	maxOutageLatency = 2 * time.Second
)

// outageServer is a service on a PostgreSQL that can be stopped, or fall silent.
type outageServer struct {
	*loginServer
	postgres *postgrestest.Server
	network  *frozen.Process // between them
	forward  *servicetest.Forwarder
	tenant   *servicetest.Tenant
}

func startOutageServer(t *testing.T) *outageServer {
	t.Helper()
	postgres, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { // after the service has ended
		if err := postgres.Remove(); err != nil {
			t.Error(err)
		}
	})
	w := &outageServer{postgres: postgres, network: &frozen.Process{}}
	key := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(key, []byte(strings.Repeat("0f", 32)), 0o600))
	database := w.relayDatabase(t, postgres.URL(t))
	w.loginServer = startLogins(t, func(o *service.Options) { o.DatabaseURL, o.SecretKeyFile = database, key })
	t.Cleanup(w.network.Continue) // before the service ends
	w.forward, w.tenant = w.StartForwarder(), w.Tenant()
	return w
}

// relayDatabase returns the database's URL with a socket that leads through w.network.
func (w *outageServer) relayDatabase(t testing.TB, database string) string {
	t.Helper()
	dir := t.TempDir()
	u, err := url.Parse(database)
	must.Succeed(t, err)
	const socket = ".s.PGSQL.5432"
	query := u.Query()
	to := filepath.Join(query.Get("host"), socket)
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	must.Succeed(t, err)
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relayTo(w.network.Conn(c), to) })
		}
	})
	t.Cleanup(func() {
		w.network.Continue()
		_ = l.Close()
		relays.Wait()
	})
	return u.String()
}

// relayTo joins c with a connection to the socket until either ends.
func relayTo(c net.Conn, socket string) {
	defer func() { _ = c.Close() }()
	other, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer func() { _ = other.Close() }()
	go func() {
		_, _ = io.Copy(other, c)
		_ = other.Close()
	}()
	_, _ = io.Copy(c, other)
}

// answerWith answers with the text.
func answerWith(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// outageTarget is what a client asks during an outage, and the answer.
type outageTarget struct {
	ask    func() (int, string)
	status int
	body   string
	cold   bool // not asked before the outage
}

// targets sets endpoints of all kinds up; each of them gets requests during the outage.
func (w *outageServer) targets(t testing.TB) map[string]outageTarget {
	t.Helper()
	page := func(url string) func() (int, string) { return func() (int, string) { return w.GetPage(url) } }
	pod := func(b tunnel.Bound) func() (int, string) { return func() (int, string) { return w.forward.Get(b) } }
	w.Bind("public", "https://warm.example.com", answerWith("warm"))
	w.Bind("public", "https://cold.example.com", answerWith("cold"))
	w.Bind("internal", "http://app.internal", answerWith("internal"))
	agent := w.Bind("kubernetes", "http://hello.demo", answerWith("pod"))
	coldAgent := w.Bind("kubernetes", "http://cold.demo", answerWith("cold pod"))
	const forward = "on_http_request:\n- actions:\n  - type: forward-internal\n    config: {url: " +
		"\"http://app.internal\"}\n"
	w.tenant.Cloud(account.BindingPublic, "https://through.example.com", forward, "")
	w.tenant.Cloud(account.BindingPublic, "https://cloud.example.com", "", w.tenant.Answer(200, "cloud"))
	podCloud := w.tenant.Cloud(account.BindingKubernetes, "http://cloud.demo", "", w.tenant.Answer(200, "pod cloud"))
	pooled := w.tenant.Answer(200, "pooled")
	addPooled := func() tunnel.Bound {
		ep, err := w.tenant.Store.CreateEndpoint(servicetest.Context(t), account.Endpoint{
			AccountID: w.tenant.Account, URL: "http://pool.demo", Bindings: []string{account.BindingKubernetes},
			Scheme: "http", Host: "pool.demo", Port: 80, Type: account.TypeCloud, BackendID: pooled,
			EndpointSettings: account.EndpointSettings{PoolingEnabled: true}}, account.PolicyFacts{})
		must.Succeed(t, err)
		return tunnel.Bound{EndpointID: ep.ID, URL: ep.URL}
	}
	addPooled()
	return map[string]outageTarget{
		"public agent":            {ask: page("https://warm.example.com/"), status: 200, body: "warm"},
		"public agent, cold":      {ask: page("https://cold.example.com/"), status: 200, body: "cold", cold: true},
		"public cloud":            {ask: page("https://cloud.example.com/"), status: 200, body: "cloud"},
		"public forward-internal": {ask: page("https://through.example.com/"), status: 200, body: "internal"},
		"pod's agent":             {ask: pod(agent), status: 200, body: "pod"},
		"pod's agent, cold":       {ask: pod(coldAgent), status: 200, body: "cold pod", cold: true},
		"pod's cloud":             {ask: pod(podCloud), status: 200, body: "pod cloud"},
		"pod's pool":              {ask: pod(addPooled()), status: 200, body: "pooled"},
	}
}

// TestOutage_TrafficWithoutLoginGoesOn takes PostgreSQL away: what agents have bound here and what
// was asked before is served at once, logins fail closed, and changes after the outage take effect.
func TestOutage_TrafficWithoutLoginGoesOn(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct{ begin, end func(*outageServer) error }{
		"stopped": {func(w *outageServer) error { return w.postgres.Down() },
			func(w *outageServer) error { return w.postgres.Up() }},
		"silent": {func(w *outageServer) error { w.network.Stop(); return nil },
			func(w *outageServer) error { w.network.Continue(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startOutageServer(t)
			targets := w.targets(t)
			w.protect("https://login.example.com", w.policy(""), answerWith("logged in"))
			person := w.newLoginBrowser()
			if a, _ := w.logIn(person, "https://login.example.com/"); a.status != 200 {
				t.Fatalf("logging in: %d %s", a.status, a.body)
			}
			for name, target := range targets {
				if !target.cold {
					expectAnswer(t, name, target)
				}
			}
			must.Succeed(t, outage.begin(w))
			for began := time.Now(); time.Since(began) < outageLength; {
				for name, target := range targets {
					expectAnswer(t, name+", during the outage", target)
				}
			}
			if a := w.request(person, "GET", "https://login.example.com/"); a.status != 503 {
				t.Errorf("a person's request during the outage: %d %s", a.status, a.body)
			}
			if status, _ := w.GetPage("https://unknown.example.com/"); status != 503 {
				t.Errorf("an unknown host during the outage: %d", status)
			}
			must.Succeed(t, outage.end(w))
			w.expectRecovery(t, targets, person)
		})
	}
}

// expectAnswer sends one request, which must be answered in time.
func expectAnswer(t testing.TB, name string, target outageTarget) {
	t.Helper()
	began := time.Now()
	status, body := target.ask()
	if status != target.status || target.body != body {
		t.Errorf("%s: %d %s", name, status, body)
	}
	if took := time.Since(began); took > maxOutageLatency {
		t.Errorf("%s: the answer took %v", name, took)
	}
}

// expectRecovery checks that logins work again, and that a deletion and a revoked grant take
// effect.
func (w *outageServer) expectRecovery(t testing.TB, targets map[string]outageTarget, person *http.Client) {
	t.Helper()
	servicetest.Eventually(t, "logins work again", func() bool {
		return w.request(person, "GET", "https://login.example.com/").status == 200
	})
	st := w.OpenStore()
	found, err := st.PublicEndpoint(servicetest.Context(t), "cloud.example.com", 443)
	must.Succeed(t, err)
	must.Succeed(t, st.DeleteEndpoint(servicetest.Context(t), w.tenant.Caller(), found.ID))
	servicetest.Eventually(t, "the deleted endpoint is gone", func() bool {
		status, _ := targets["public cloud"].ask()
		return status == 404
	})
	must.Succeed(t, st.RevokeDomain(servicetest.Context(t), w.Account, "*.example.com"))
	servicetest.Eventually(t, "the revoked domain is gone", func() bool {
		browser := w.NewBrowser()
		defer browser.CloseIdleConnections()
		res, err := browser.Get("https://warm.example.com/")
		if err != nil { // the revocation cuts a request that is on its way
			return false
		}
		defer func() { _ = res.Body.Close() }()
		return res.StatusCode == 404
	})
	expectAnswer(t, "pod's agent, after the outage", targets["pod's agent"])
}
