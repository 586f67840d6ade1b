// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// overflowHelp ends the help of each metric by endpoint or backend.
const overflowHelp = `; the ones beyond --metrics-series together as "other".`

// boundedMetrics are the metrics of TestTrafficMetrics_AreBounded.
const boundedMetrics = `
# HELP fairlead_server_endpoint_requests_total HTTP requests by endpoint and class of the status ` +
	`(gone: the client left first)` +
	overflowHelp + `
# TYPE fairlead_server_endpoint_requests_total counter
fairlead_server_endpoint_requests_total{class="2xx",endpoint="ep-a"} 10
fairlead_server_endpoint_requests_total{class="2xx",endpoint="ep-b"} 10
fairlead_server_endpoint_requests_total{class="2xx",endpoint="ep-c"} 10
fairlead_server_endpoint_requests_total{class="2xx",endpoint="other"} 70
fairlead_server_endpoint_requests_total{class="gone",endpoint="other"} 2
# HELP fairlead_server_endpoint_errors_total Requests and connections that got no answer of an upstream, ` +
	`by endpoint and code of docs/fix/errors.md` +
	overflowHelp + `
# TYPE fairlead_server_endpoint_errors_total counter
fairlead_server_endpoint_errors_total{code="ERR_FL_3001",endpoint="other"} 1
# HELP fairlead_server_backend_requests_total HTTP requests by backend and class of the status ` +
	`(gone: the client left first)` +
	overflowHelp + `
# TYPE fairlead_server_backend_requests_total counter
fairlead_server_backend_requests_total{backend="bk-a",class="2xx"} 20
fairlead_server_backend_requests_total{backend="bk-b",class="2xx"} 20
fairlead_server_backend_requests_total{backend="bk-c",class="2xx"} 20
fairlead_server_backend_requests_total{backend="other",class="2xx"} 40
`

// TestTrafficMetrics_AreBounded counts requests of more objects than there are rows.
func TestTrafficMetrics_AreBounded(t *testing.T) {
	t.Parallel()
	m := newRequestMeter(traffic.New(traffic.Options{MaxOwn: 3}))
	record := func(id, backend string, status int, code account.Code) {
		s := &edge.RequestRecord{Endpoint: &account.Endpoint{ID: id, AccountID: "ac-1"},
			Request: &http.Request{RequestURI: "/"}, StartedAt: time.Now()}
		m.Start(s)
		s.LiveTraffic.Add(1, 2)
		s.Status, s.Code, s.BackendID, s.Duration = status, code, backend, time.Second
		m.Finish(s)
	}
	for i := range 100 {
		record("ep-"+string(rune('a'+i%10)), "bk-"+string(rune('a'+i%5)), 200, "")
	}
	record("ep-z", "", 999, "ERR_FL_3001")
	record("ep-z", "", 499, "")
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(boundedMetrics),
		"fairlead_server_endpoint_requests_total",
		"fairlead_server_endpoint_errors_total",
		"fairlead_server_backend_requests_total"); err != nil {
		t.Error(err)
	}
	exists := func(_ context.Context, _, id string) bool { return id == "ep-b" }
	m.traffic.Endpoints.DropDeleted(t.Context(), time.Now().Add(time.Minute), exists)
	record("ep-y", "", 200, "")
	requests := map[string]int64{}
	m.traffic.Endpoints.Each(func(id string, of *traffic.Totals) { requests[id] = of.Requests[2] })
	if want := map[string]int64{"ep-b": 10, "ep-y": 1, "": 70}; !maps.Equal(requests, want) {
		t.Errorf("after endpoints were deleted and one came: requests %v, want %v", requests, want)
	}
}

// TestTrafficMetrics_AllocateNothing counts bytes, and connections.
func TestTrafficMetrics_AllocateNothing(t *testing.T) {
	m := newRequestMeter(traffic.New(traffic.Options{MaxOwn: 10}))
	s := &edge.RequestRecord{Endpoint: &account.Endpoint{ID: "ep-1"}, StartedAt: time.Now()}
	m.Start(s)
	if n := testing.AllocsPerRun(100, func() { s.LiveTraffic.Add(10, 10) }); n != 0 {
		t.Errorf("%v allocations for counting bytes", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.Start(s); m.Finish(s) }); n != 0 {
		t.Errorf("%v allocations for counting a connection", n)
	}
}

// BenchmarkRequestMeter meters a request without access log and traces.
func BenchmarkRequestMeter(b *testing.B) {
	m := newRequestMeter(traffic.New(traffic.Options{MaxOwn: 10}))
	s := &edge.RequestRecord{Endpoint: &account.Endpoint{ID: "ep-1", AccountID: "ac-1"}, StartedAt: time.Now(),
		Client:  &edge.ClientInfo{ClientIP: netip.MustParseAddr("203.0.113.9")},
		Request: &http.Request{Method: "GET", RequestURI: "/api/v1/things?token=abc", ProtoMajor: 1, ProtoMinor: 1}}
	b.ReportAllocs()
	for b.Loop() {
		m.Start(s)
		s.LiveTraffic.Add(100, 1000)
		s.Status, s.Duration = 200, 3*time.Millisecond
		m.Finish(s)
	}
}
