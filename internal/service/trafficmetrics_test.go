// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/edge"
	"github.com/fairlead-dev/fairlead/internal/testenv/closedport"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// counted waits until a scrape has all the lines, with ID for the endpoint's id.
func (p *edgePath) counted(lines ...string) {
	p.t.Helper()
	var missing, metrics string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		metrics, missing = p.scrapeMetrics(), ""
		for _, line := range lines {
			if line = strings.ReplaceAll(line, "ID", p.bound.EndpointID); !strings.Contains(metrics, line+"\n") {
				missing = line
			}
		}
		if missing == "" {
			return
		}
	}
	p.t.Fatalf("the metrics lack %s:\n%s", missing, metrics)
}

func TestMetrics_OfEndpoint(t *testing.T) {
	t.Parallel()
	p := newEdgePath(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "0123456789")
	})
	for _, way := range []string{"/", "/", "/teapot"} {
		_ = readAll(t, p.forwarder.do(p.tr, "POST", "http://hello.demo"+way, strings.NewReader("abcde"), nil).Body)
	}
	p.counted(
		`fairlead_server_endpoint_requests_total{class="2xx",endpoint="ID"} 2`,
		`fairlead_server_endpoint_requests_total{class="4xx",endpoint="ID"} 1`,
		`fairlead_server_endpoint_bytes_total{direction="in",endpoint="ID"} 15`,
		`fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 30`,
		`fairlead_server_endpoint_duration_seconds_count{endpoint="ID"} 3`, `fairlead_server_endpoint_open{endpoint="ID"} 0`,
	)
	p.agent.stop()
	if res := p.forwarder.do(p.tr, "GET", "http://hello.demo/", nil, nil); res.StatusCode != 503 {
		t.Fatalf("status %d", res.StatusCode)
	}
	p.counted(`fairlead_server_endpoint_requests_total{class="5xx",endpoint="ID"} 1`,
		`fairlead_server_endpoint_errors_total{code="ERR_FL_3001",endpoint="ID"} 1`)
}

func TestMetrics_OfOpenUpgradedConnection(t *testing.T) {
	t.Parallel()
	p := newEdgePath(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
		_, _ = io.WriteString(c, "bye")
	})
	st := p.forwarder.open(openHeader(t, p.bound))
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
	p.counted(`fairlead_server_endpoint_bytes_total{direction="in",endpoint="ID"} 6`,
		`fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 6`,
		`fairlead_server_endpoint_open{endpoint="ID"} 1`)
	if err := st.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest := readAll(t, in); rest != "bye" {
		t.Errorf("after the half-close came %q", rest)
	}
	p.counted(`fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 9`,
		`fairlead_server_endpoint_requests_total{class="1xx",endpoint="ID"} 1`,
		`fairlead_server_endpoint_open{endpoint="ID"} 0`)
}

func TestMetrics_OfRefusedConnections(t *testing.T) {
	t.Parallel()
	p := newTCPPath(t, closedport.Reserve(t))
	if code := p.forwarder.openRefused(openHeader(t, p.bound)); code != tunnel.RefusedUpstream {
		t.Fatalf("refused with %s", code)
	}
	p.counted(`fairlead_server_endpoint_errors_total{code="ERR_FL_3002",endpoint="ID"} 1`)
	p.agent.stop()
	if code := p.forwarder.openRefused(openHeader(t, p.bound)); code != tunnel.RefusedOffline {
		t.Fatalf("refused with %s", code)
	}
	p.counted(`fairlead_server_endpoint_errors_total{code="ERR_FL_3001",endpoint="ID"} 1`,
		`fairlead_server_endpoint_connections_total{endpoint="ID"} 2`)
}

func TestMetrics_OfTCPEndpointUntilDeleted(t *testing.T) {
	t.Parallel()
	echo := serveTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	p := edgePathTo(t, startServer(t, func(o *Options) {
		o.dropDeletedInterval, o.EndpointGrace = 50*time.Millisecond, time.Second
	}), echo,
		func(b *tunnel.Bind) {
			b.URL, b.UpstreamURL, b.UpstreamProtocol = "tcp://db.demo:5432", "tcp://"+echo, ""
		})
	st := p.forwarder.open(openHeader(t, p.bound))
	_, _ = io.WriteString(st, "question")
	if _, err := io.ReadFull(st, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	p.counted(`fairlead_server_endpoint_bytes_total{direction="in",endpoint="ID"} 8`,
		`fairlead_server_endpoint_bytes_total{direction="out",endpoint="ID"} 8`,
		`fairlead_server_endpoint_open{endpoint="ID"} 1`)
	_ = st.CloseWrite()
	_ = readAll(t, st)
	p.counted(`fairlead_server_endpoint_connections_total{endpoint="ID"} 1`,
		`fairlead_server_endpoint_open{endpoint="ID"} 0`)
	p.agent.stop()
	for deadline := time.Now().Add(patience); strings.Contains(p.scrapeMetrics(), p.bound.EndpointID); {
		if time.Now().After(deadline) {
			t.Fatal("the deleted endpoint is still in the metrics")
		}
	}
}

// Whatever passes by, the number of series is bounded, and nothing goes uncounted.
func TestTrafficMetrics_AreBounded(t *testing.T) {
	t.Parallel()
	m := newRequestMeter(3)
	see := func(id, backend string, status int, code account.Code) {
		s := &edge.RequestRecord{Endpoint: &account.Endpoint{ID: id, AccountID: "ac-1"}, Request: &http.Request{},
			StartedAt: time.Now()}
		m.Start(s)
		s.LiveTraffic.Add(1, 2)
		s.Status, s.Code, s.BackendID, s.Duration = status, code, backend, time.Second
		m.Finish(s)
	}
	for i := range 100 {
		see("ep-"+string(rune('a'+i%10)), "bk-"+string(rune('a'+i%5)), 200, "")
	}
	see("ep-z", "", 999, "ERR_FL_3001")
	see("ep-z", "", 499, "")
	expect := `
		# HELP fairlead_server_endpoint_requests_total HTTP requests by endpoint and class of the status (gone: the client left first); the ones beyond --metrics-series together as "other".
		# TYPE fairlead_server_endpoint_requests_total counter
		fairlead_server_endpoint_requests_total{class="2xx",endpoint="ep-a"} 10
		fairlead_server_endpoint_requests_total{class="2xx",endpoint="ep-b"} 10
		fairlead_server_endpoint_requests_total{class="2xx",endpoint="ep-c"} 10
		fairlead_server_endpoint_requests_total{class="2xx",endpoint="other"} 70
		fairlead_server_endpoint_requests_total{class="gone",endpoint="other"} 2
		# HELP fairlead_server_endpoint_errors_total Requests and connections that got no answer of an upstream, by endpoint and code of docs/errors.md; the ones beyond --metrics-series together as "other".
		# TYPE fairlead_server_endpoint_errors_total counter
		fairlead_server_endpoint_errors_total{code="ERR_FL_3001",endpoint="other"} 1
		# HELP fairlead_server_backend_requests_total HTTP requests by backend and class of the status (gone: the client left first); the ones beyond --metrics-series together as "other".
		# TYPE fairlead_server_backend_requests_total counter
		fairlead_server_backend_requests_total{backend="bk-a",class="2xx"} 20
		fairlead_server_backend_requests_total{backend="bk-b",class="2xx"} 20
		fairlead_server_backend_requests_total{backend="bk-c",class="2xx"} 20
		fairlead_server_backend_requests_total{backend="other",class="2xx"} 40
	`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(expect), "fairlead_server_endpoint_requests_total",
		"fairlead_server_endpoint_errors_total",
		"fairlead_server_backend_requests_total"); err != nil {
		t.Error(err)
	}
	stays := func(_ context.Context, _, id string) bool { return id == "ep-b" }
	m.endpoints.dropDeleted(t.Context(), time.Now().Add(time.Minute), stays)
	see("ep-y", "", 200, "")
	if n := len(m.endpoints.rows); n != 2 || m.endpoints.rows["ep-b"] == nil || m.endpoints.rows["ep-y"] == nil {
		t.Errorf("%d rows after two endpoints were deleted and one came", n)
	}
}

// What moves bytes allocates nothing to count them.
func TestTrafficMetrics_AllocateNothing(t *testing.T) {
	m := newRequestMeter(10)
	s := &edge.RequestRecord{Endpoint: &account.Endpoint{ID: "ep-1"}, StartedAt: time.Now()}
	m.Start(s)
	if n := testing.AllocsPerRun(100, func() { s.LiveTraffic.Add(10, 10) }); n != 0 {
		t.Errorf("%v allocations for counting bytes", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.Start(s); m.Finish(s) }); n != 0 {
		t.Errorf("%v allocations for counting a connection", n)
	}
}

func TestMetrics_OfBackends(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	f, a := r.startForwarder(), r.tenant()
	canned := a.answer(200, "canned")
	order := a.failover(a.group(map[string]string{"app": "nobody"}), canned)
	b := a.cloud(account.BindingKubernetes, "http://cloud.demo", "", order)
	if status, body := f.get(b); status != 200 || body != "canned" {
		t.Fatalf("%d %s", status, body)
	}
	(&edgePath{testServer: r, bound: b}).counted(
		`fairlead_server_backend_requests_total{backend="`+canned+`",class="2xx"} 1`,
		`fairlead_server_backend_bytes_total{backend="`+canned+`",direction="out"} 6`,
		`fairlead_server_backend_active{backend="`+order+`",child="`+canned+`"} 1`,
		`fairlead_server_endpoint_requests_total{class="2xx",endpoint="ID"} 1`,
	)
}
