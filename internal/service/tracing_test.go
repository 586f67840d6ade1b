// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	clientTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan   = "00f067aa0ba902b7"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// traceReceiver is a collector of traces.
func traceReceiver(t *testing.T) (url string, spans func() []*v1.Span) {
	t.Helper()
	var mu sync.Mutex
	var got []*v1.Span
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &in); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, res := range in.ResourceSpans {
			for _, s := range res.ScopeSpans {
				got = append(got, s.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() []*v1.Span {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

func attributesOf(s *v1.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

// With a collector in the environment each request has a span in the client's trace, and the
// upstream's parent is ours.
func TestTracing_OfRequests(t *testing.T) { // not parallel: it sets the environment
	url, spans := traceReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	parents := make(chan http.Header, 2)
	upstream := servicetest.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		parents <- r.Header.Clone()
		w.WriteHeader(http.StatusTeapot)
	})
	p := servicetest.NewPathTo(t, servicetest.Start(t), upstream)
	header := http.Header{"Traceparent": {clientParent}, "Tracestate": {"vendor=1"},
		"Authorization": {"request-secret"}}
	p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/tea?token=request-secret", nil, header)
	with := servicetest.Receive(t, parents, "request")
	p.Forwarder.Do(p.Transport, "BREW", "http://hello.demo/", nil, nil)
	without := servicetest.Receive(t, parents, "request")
	p.Agent.Stop()
	p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil)
	if err := p.StopAndWait(); err != nil { // which sends what has not been sent
		t.Fatal(err)
	}
	got := spans()
	if len(got) != 3 {
		t.Fatalf("%d spans", len(got))
	}
	first := got[0]
	hex := func(b []byte) string {
		const digits = "0123456789abcdef"
		var s strings.Builder
		for _, c := range b {
			s.WriteByte(digits[c>>4])
			s.WriteByte(digits[c&15])
		}
		return s.String()
	}
	if hex(first.TraceId) != clientTrace || hex(first.ParentSpanId) != clientSpan || first.Name != "GET" ||
		first.Kind != v1.Span_SPAN_KIND_SERVER {
		t.Errorf("span %v", first)
	}
	if want := "00-" + clientTrace + "-" + hex(first.SpanId) + "-01"; with.Get("Traceparent") != want ||
		with.Get("Tracestate") != "vendor=1" {
		t.Errorf("the upstream got %v, want %s", with, want)
	}
	if want := "00-" + hex(got[1].TraceId) + "-" + hex(got[1].SpanId) + "-01"; without.Get("Traceparent") != want ||
		len(got[1].ParentSpanId) != 0 || got[1].Name != "_OTHER" {
		t.Errorf("without a trace of the client's the upstream got %v, want %s", without, want)
	}
	a := attributesOf(first)
	if !strings.Contains(a["fairlead.endpoint.id"], p.Bound.EndpointID) ||
		a["http.response.status_code"] != "int_value:418" || !strings.Contains(a["url.path"], `"/tea"`) ||
		!strings.Contains(a["client.address"], "10.1.2.3") || !strings.Contains(a["fairlead.operator.id"],
		p.OperatorID) {
		t.Errorf("attributes %v", a)
	}
	if a := attributesOf(got[2]); !strings.Contains(a["error.type"], "ERR_FL_3001") ||
		got[2].Status.GetCode() != v1.Status_STATUS_CODE_ERROR {
		t.Errorf("the span of an endpoint that is offline: %v", got[2])
	}
	for _, s := range got {
		if strings.Contains(s.String(), "request-secret") {
			t.Errorf("a span holds a secret: %v", s)
		}
	}
}

// A connection to a tcp endpoint has one span, with what was moved, however it ends.
func TestTracing_OfConnections(t *testing.T) { // not parallel: it sets the environment
	url, spans := traceReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	r := servicetest.Start(t)
	a := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "tcp://db.demo:5432"},
		servicetest.RelayTo(servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })))
	bound, f := servicetest.Receive(t, a.Bound, "bind"), r.StartForwarder()
	st := f.Open(servicetest.OpenHeader(t, bound))
	_, _ = io.WriteString(st, "request-secret")
	_ = st.CloseWrite()
	if got := servicetest.ReadAll(t, st); got != "request-secret" {
		t.Fatalf("%q", got)
	}
	a.Stop()
	servicetest.Eventually(t, "the agent is gone", func() bool {
		return f.OpenRefused(servicetest.OpenHeader(t, bound)) == tunnel.RefusedOffline
	})
	if err := r.StopAndWait(); err != nil {
		t.Fatal(err)
	}
	got := spans()
	if len(got) < 2 {
		t.Fatalf("%d spans", len(got))
	}
	// it may end after those of the agent that is gone
	isWhole := func(s *v1.Span) bool { return attributesOf(s)["error.type"] == "" }
	i := slices.IndexFunc(got, isWhole)
	last := slices.IndexFunc(got, func(s *v1.Span) bool { return !isWhole(s) })
	if i < 0 || last < 0 {
		t.Fatalf("%v", got)
	}
	at := attributesOf(got[i])
	if got[i].Name != "tcp" || at["fairlead.bytes_in"] != "int_value:14" ||
		at["fairlead.bytes_out"] != "int_value:14" ||
		!strings.Contains(at["fairlead.endpoint.id"], bound.EndpointID) ||
		at["server.port"] != "int_value:5432" || !strings.Contains(at["client.address"], "10.1.2.3") ||
		got[i].Status.GetCode() == v1.Status_STATUS_CODE_ERROR {
		t.Errorf("a connection: %v", got[i])
	}
	if at := attributesOf(got[last]); !strings.Contains(at["error.type"], "ERR_FL_3001") ||
		got[last].Status.GetCode() != v1.Status_STATUS_CODE_ERROR {
		t.Errorf("one to an endpoint that is offline: %v", got[last])
	}
	for _, s := range got {
		if strings.Contains(s.String(), "request-secret") {
			t.Errorf("a span holds what was sent: %v", s)
		}
	}
}

// Without a collector what the client says passes untouched, whatever it is, and nothing is added.
func TestTracing_OffPassesTraceHeaders(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	p := servicetest.NewPath(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	for _, sent := range []http.Header{{"Traceparent": {clientParent}, "Tracestate": {"a=1", "b=2"}},
		{"Traceparent": {"no trace"}}, {}} {
		p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, sent)
		arrived := servicetest.Receive(t, got, "request")
		maps.DeleteFunc(arrived, func(name string, _ []string) bool { return !strings.HasPrefix(name, "Trace") })
		if !maps.EqualFunc(sent, arrived, func(a, b []string) bool {
			return strings.Join(a, "|") == strings.Join(b, "|")
		}) {
			t.Errorf("sent %v, arrived %v", sent, arrived)
		}
	}
}

func TestStart_RefusesBadObservabilitySettings(t *testing.T) { // not parallel: it sets the environment
	refused := func(want string, change ...func(*service.Options)) {
		t.Helper()
		o := service.Options{Addr: "127.0.0.1:0", DataDir: t.TempDir(), EndpointGrace: 1e9, AccessLogSample: 1,
			Logger: slog.New(slog.DiscardHandler)}
		for _, f := range change {
			f(&o)
		}
		if err := service.Run(servicetest.Context(t), o); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "request-secret") {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	refused("--access-log-sample", func(o *service.Options) { o.AccessLogSample = 1.5 })
	refused("--access-log", func(o *service.Options) {
		o.AccessLog = filepath.Join(t.TempDir(), "missing", "access.log")
	})
	refused("--static-allow", func(o *service.Options) { o.StaticAllow = []string{"10.0.0.0/33"} })
	refused("--metrics-series", func(o *service.Options) { o.MetricsSeries = -1 })
	for _, endpoint := range []string{"foo", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://",
		"https://user:request-secret@", "http://[::1"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		refused("give the collector's address as http://HOST:4318")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	refused("OTEL_EXPORTER_OTLP_PROTOCOL")
}
