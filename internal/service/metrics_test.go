// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// checkCounted waits until a scrape has all the lines, with ID for the endpoint's id.
func checkCounted(p *servicetest.Path, lines ...string) {
	p.T.Helper()
	var missing, metrics string
	for deadline := time.Now().Add(servicetest.MaxWait); time.Now().Before(deadline); {
		metrics, missing = p.ScrapeMetrics(), ""
		for _, line := range lines {
			if line = strings.ReplaceAll(line, "ID", p.Bound.EndpointID); !strings.Contains(metrics, line+"\n") {
				missing = line
			}
		}
		if missing == "" {
			return
		}
	}
	p.T.Fatalf("the metrics lack %s:\n%s", missing, metrics)
}

func TestMetrics_OfEndpoint(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "0123456789")
	})
	for _, path := range []string{"/", "/", "/teapot"} {
		_ = servicetest.ReadAll(t, p.Forwarder.Do(p.Transport, "POST", "http://hello.demo"+path,
			strings.NewReader("abcde"),
			nil).Body)
	}
	checkCounted(p,
		`fairlead_server_endpoint_requests_total{class="2xx",endpoint="ID"} 2`,
		`fairlead_server_endpoint_requests_total{class="4xx",endpoint="ID"} 1`,
		`fairlead_server_endpoint_bytes_total{direction="in",endpoint="ID"} 15`,
		`fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 30`,
		`fairlead_server_endpoint_duration_seconds_count{endpoint="ID"} 3`,
		`fairlead_server_endpoint_open{endpoint="ID"} 0`,
	)
	p.Agent.Stop()
	if res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil); res.StatusCode != 503 {
		t.Fatalf("status %d", res.StatusCode)
	}
	checkCounted(p, `fairlead_server_endpoint_requests_total{class="5xx",endpoint="ID"} 1`,
		`fairlead_server_endpoint_errors_total{code="ERR_FL_3001",endpoint="ID"} 1`)
}

func TestMetrics_OfOpenUpgradedConnection(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
		_, _ = io.WriteString(c, "bye")
	})
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	_, _ = io.WriteString(st,
		"GET /chat HTTP/1.1\r\nHost: hello.demo\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(st)
	//nolint:bodyclose // 101 has none
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer %v %v", res, err)
	}
	_, _ = io.WriteString(st, "hello\n")
	if got, err := in.ReadString('\n'); err != nil || got != "hello\n" {
		t.Fatalf("echo %q %v", got, err)
	}
	checkCounted(p, `fairlead_server_endpoint_bytes_total{direction="in",endpoint="ID"} 6`,
		`fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 6`,
		`fairlead_server_endpoint_open{endpoint="ID"} 1`)
	must.Succeed(t, st.CloseWrite())
	if rest := servicetest.ReadAll(t, in); rest != "bye" {
		t.Errorf("after the half-close came %q", rest)
	}
	checkCounted(p, `fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 9`,
		`fairlead_server_endpoint_requests_total{class="1xx",endpoint="ID"} 1`,
		`fairlead_server_endpoint_open{endpoint="ID"} 0`)
}

func TestMetrics_OfRefusedConnections(t *testing.T) {
	t.Parallel()
	p := servicetest.NewTCPPath(t, closedport.Reserve(t))
	if code := p.Forwarder.OpenRefused(servicetest.OpenHeader(t, p.Bound)); code != tunnel.RefusedUpstream {
		t.Fatalf("refused with %s", code)
	}
	checkCounted(p, `fairlead_server_endpoint_errors_total{code="ERR_FL_3002",endpoint="ID"} 1`)
	p.Agent.Stop()
	if code := p.Forwarder.OpenRefused(servicetest.OpenHeader(t, p.Bound)); code != tunnel.RefusedOffline {
		t.Fatalf("refused with %s", code)
	}
	checkCounted(p, `fairlead_server_endpoint_errors_total{code="ERR_FL_3001",endpoint="ID"} 1`,
		`fairlead_server_endpoint_connections_total{endpoint="ID"} 2`)
}

func TestMetrics_OfTCPEndpointUntilDeleted(t *testing.T) {
	t.Parallel()
	p := servicetest.NewTCPPathTo(t, servicetest.Start(t, func(o *service.Options) {
		o.EndpointGrace = time.Second
	}), servicetest.ServeTCP(t, servicetest.Echo))
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	_, _ = io.WriteString(st, "question")
	if _, err := io.ReadFull(st, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	checkCounted(p, `fairlead_server_endpoint_bytes_total{direction="in",endpoint="ID"} 8`,
		`fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 8`,
		`fairlead_server_endpoint_open{endpoint="ID"} 1`)
	_ = st.CloseWrite()
	_ = servicetest.ReadAll(t, st)
	checkCounted(p, `fairlead_server_endpoint_connections_total{endpoint="ID"} 1`,
		`fairlead_server_endpoint_open{endpoint="ID"} 0`)
	p.Agent.Stop()
	servicetest.Eventually(t, "the metrics drop the deleted endpoint", func() bool {
		return !strings.Contains(p.ScrapeMetrics(), p.Bound.EndpointID)
	})
}

func TestMetrics_OfBackends(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	canned := a.Answer(200, "canned")
	order := a.Failover(a.Group(map[string]string{"app": "offline"}), canned)
	b := a.Cloud(account.BindingKubernetes, "http://cloud.demo", "", order)
	if status, body := f.Get(b); status != 200 || body != "canned" {
		t.Fatalf("%d %s", status, body)
	}
	checkCounted((&servicetest.Path{Server: r, Bound: b}),
		`fairlead_server_backend_requests_total{backend="`+canned+`",class="2xx"} 1`,
		`fairlead_server_backend_bytes_total{backend="`+canned+`",direction="out"} 6`,
		`fairlead_server_backend_active{backend="`+order+`",child="`+canned+`"} 1`,
		`fairlead_server_endpoint_requests_total{class="2xx",endpoint="ID"} 1`,
	)
}
