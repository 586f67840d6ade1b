// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/hex"
	"io"
	"maps"
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
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

const (
	clientTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan   = "00f067aa0ba902b7"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// traceReceiver starts a collector of traces and returns its URL, and what returns the spans so
// far.
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

// checkSecretsAbsent fails if a span holds what traceRequests and TestTracing_OfConnections send as
// a secret.
func checkSecretsAbsent(t *testing.T, spans []*v1.Span) {
	t.Helper()
	for _, s := range spans {
		if strings.Contains(s.String(), "request-secret") {
			t.Errorf("a span holds a secret: %v", s)
		}
	}
}

// tracedRequests are the spans of a request with a trace, one without and one to an offline
// endpoint, and the headers of the first two at the upstream.
type tracedRequests struct {
	*servicetest.Path
	spans   []*v1.Span
	headers [2]http.Header
}

// traceRequests sends the requests of tracedRequests with a collector in the environment.
func traceRequests(t *testing.T) tracedRequests {
	t.Helper()
	url, spans := traceReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	received := make(chan http.Header, 2)
	upstream := servicetest.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		received <- r.Header.Clone()
		w.WriteHeader(http.StatusTeapot)
	})
	r := tracedRequests{Path: servicetest.NewPathTo(t, servicetest.Start(t), upstream)}
	header := http.Header{"Traceparent": {clientParent}, "Tracestate": {"vendor=1"},
		"Authorization": {"request-secret"}}
	r.Forwarder.Do(r.Transport, "GET", "http://hello.demo/tea?token=request-secret", nil, header)
	r.headers[0] = servicetest.Receive(t, received, "request")
	r.Forwarder.Do(r.Transport, "BREW", "http://hello.demo/", nil, nil)
	r.headers[1] = servicetest.Receive(t, received, "request")
	r.Agent.Stop()
	r.Forwarder.Do(r.Transport, "GET", "http://hello.demo/", nil, nil)
	if err := r.StopAndWait(); err != nil { // the stop sends the remaining spans
		t.Fatal(err)
	}
	if r.spans = spans(); len(r.spans) != 3 {
		t.Fatalf("%d spans", len(r.spans))
	}
	return r
}

// TestTracing_OfRequests: with a collector in the environment each request has a span in the
// client's trace, and the upstream's parent is that span.
func TestTracing_OfRequests(t *testing.T) { // not parallel: it sets the environment
	r := traceRequests(t)
	first, second, offline := r.spans[0], r.spans[1], r.spans[2]
	if hex.EncodeToString(first.TraceId) != clientTrace || hex.EncodeToString(first.ParentSpanId) != clientSpan ||
		first.Name != "GET" || first.Kind != v1.Span_SPAN_KIND_SERVER {
		t.Errorf("span %v", first)
	}
	if got, want := r.headers[0], traceparent(first); got.Get("Traceparent") != want ||
		got.Get("Tracestate") != "vendor=1" {
		t.Errorf("the upstream got %v, want %s", got, want)
	}
	if got, want := r.headers[1], traceparent(second); got.Get("Traceparent") != want ||
		len(second.ParentSpanId) != 0 || second.Name != "_OTHER" {
		t.Errorf("without a trace of the client the upstream got %v, want %s", got, want)
	}
	a := attributesOf(first)
	if !strings.Contains(a["fairlead.endpoint.id"], r.Bound.EndpointID) ||
		a["http.response.status_code"] != "int_value:418" || !strings.Contains(a["url.path"], `"/tea"`) ||
		!strings.Contains(a["client.address"], "10.1.2.3") ||
		!strings.Contains(a["fairlead.operator.id"], r.OperatorID) {
		t.Errorf("attributes %v", a)
	}
	if a := attributesOf(offline); !strings.Contains(a["error.type"], "ERR_FL_3001") ||
		offline.Status.GetCode() != v1.Status_STATUS_CODE_ERROR {
		t.Errorf("the span of an offline endpoint: %v", offline)
	}
	checkSecretsAbsent(t, r.spans)
}

// traceparent returns the header that names the span as parent.
func traceparent(s *v1.Span) string {
	return "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
}

// TestTracing_OfConnections: each connection to a tcp endpoint has one span, with its bytes or its
// error.
func TestTracing_OfConnections(t *testing.T) { // not parallel: it sets the environment
	url, spans := traceReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	r := servicetest.Start(t)
	a := r.StartAgent(tunnel.Bind{URL: "tcp://db.demo:5432"}, servicetest.ServeTCP(t, servicetest.Echo))
	bound, f := servicetest.Receive(t, a.Bound, "bind"), r.StartForwarder()
	st := f.Open(servicetest.OpenHeader(t, bound))
	_, _ = io.WriteString(st, "request-secret")
	_ = st.CloseWrite()
	if got := servicetest.ReadAll(t, st); got != "request-secret" {
		t.Fatalf("%q", got)
	}
	a.Stop()
	servicetest.Eventually(t, "the endpoint is offline", func() bool {
		return f.OpenRefused(servicetest.OpenHeader(t, bound)) == tunnel.RefusedOffline
	})
	must.Succeed(t, r.StopAndWait())
	got := spans()
	if len(got) < 2 {
		t.Fatalf("%d spans", len(got))
	}
	// the span of the served connection may end after those of the refused ones
	failed := func(s *v1.Span) bool { return attributesOf(s)["error.type"] != "" }
	i := slices.IndexFunc(got, func(s *v1.Span) bool { return !failed(s) })
	last := slices.IndexFunc(got, failed)
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
		t.Errorf("a connection to an offline endpoint: %v", got[last])
	}
	checkSecretsAbsent(t, got)
}

// TestTracing_OffPassesTraceHeaders: without a collector the client's trace headers pass unchanged,
// even invalid ones, and none is added.
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
		if err := servicetest.StartError(t, change...); err == nil || !strings.Contains(err.Error(), want) ||
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
