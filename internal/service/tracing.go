// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// tracing makes a span of every request, and of every connection to a tcp endpoint. A request's
// span continues the client's trace and is the parent of the upstream's.
type tracing struct {
	provider   *sdk.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TraceContext
}

// traceEndpoints are the environment variables with the collector's URL. OpenTelemetry's libraries
// read them themselves, and others.
var traceEndpoints = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// newTracing returns the tracing that the environment configures; nil when it configures none.
func newTracing(ctx context.Context, log *slog.Logger) (*tracing, error) {
	configured := false
	for _, name := range traceEndpoints {
		configured = configured || os.Getenv(name) != ""
	}
	if !configured || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := os.Getenv(name); p != "" && p != "http/protobuf" {
			return nil, fmt.Errorf(
				"%s %q: traces are sent over http/protobuf only; leave it out, and give the collector's HTTP port",
				name, p)
		}
	}
	for _, name := range traceEndpoints {
		if err := checkTraceEndpoint(name, os.Getenv(name)); err != nil {
			return nil, err
		}
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("making the exporter of traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "fairlead-server"),
			attribute.String("service.version", version.String())), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("reading OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are not sent", "err", err) }))
	t := &tracing{provider: sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))}
	t.tracer = t.provider.Tracer("github.com/fairlead-dev/fairlead/internal/edge")
	return t, nil
}

// checkTraceEndpoint refuses URLs that the exporter would read as another address, or would ignore;
// "" is not set. The value may hold a password, so the error repeats only a URL without one.
func checkTraceEndpoint(name, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
		return nil
	case err != nil || strings.Contains(value, "@"):
		value = ""
	}
	return account.Invalid(name, value,
		"give the collector's address as http://HOST:4318 or https://HOST[:PORT], of its OTLP port for HTTP")
}

// close sends the remaining spans, for at most 3 seconds.
func (t *tracing) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("sending the last traces: %w", err)
	}
	return nil
}

// startSpan starts the span of a request or connection. It names a request's span as parent in the
// headers to the upstream; a connection has none.
func (t *tracing) startSpan(s *edge.RequestRecord) trace.Span {
	if s.Request == nil {
		_, span := t.tracer.Start(context.Background(), s.Endpoint.Scheme, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithTimestamp(s.StartedAt),
			trace.WithAttributes(clientAttributes(s, attribute.String("network.transport", "tcp"))...))
		return span
	}
	header := propagation.HeaderCarrier(s.Request.Header)
	method := methodAttribute(s.Request.Method)
	ctx, span := t.tracer.Start(t.propagator.Extract(context.Background(), header), method,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(s.StartedAt),
		trace.WithAttributes(clientAttributes(s, attribute.String("http.request.method", method),
			attribute.String("url.path", truncate(s.Request.URL.EscapedPath(), maxLoggedText)))...))
	t.propagator.Inject(ctx, header)
	return span
}

// clientAttributes appends the attributes of endpoint and client.
func clientAttributes(s *edge.RequestRecord, attributes ...attribute.KeyValue) []attribute.KeyValue {
	attributes = append(attributes, attribute.String("server.address", s.Endpoint.Host),
		attribute.Int("server.port", s.Endpoint.Port),
		attribute.String("fairlead.endpoint.id", s.Endpoint.ID),
		attribute.String("fairlead.account.id", s.Endpoint.AccountID))
	if s.Client.ClientIP.IsValid() {
		attributes = append(attributes, attribute.String("client.address", s.Client.ClientIP.String()))
	}
	if s.Client.OperatorID != "" {
		attributes = append(attributes, attribute.String("fairlead.operator.id", s.Client.OperatorID))
	}
	if s.Client.CredentialID != "" {
		attributes = append(attributes, attribute.String("fairlead.credential.id", s.Client.CredentialID))
	}
	return attributes
}

// methodAttribute returns the method, or _OTHER for one that is not HTTP's own: clients must not
// choose span names.
func methodAttribute(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return m
	}
	return "_OTHER"
}

// endSpan ends the span with the outcome.
func endSpan(span trace.Span, s *edge.RequestRecord) {
	failed := s.Status >= 500
	if s.Request != nil {
		span.SetAttributes(attribute.Int("http.response.status_code", s.Status))
	} else {
		in, out := s.Traffic.Totals()
		span.SetAttributes(attribute.Int64("fairlead.bytes_in", in), attribute.Int64("fairlead.bytes_out", out))
		failed = s.Code != "" && s.Code != account.CodeDenied
	}
	if s.BackendID != "" {
		span.SetAttributes(attribute.String("fairlead.backend.id", s.BackendID))
	}
	if s.Code != "" {
		span.SetAttributes(attribute.String("error.type", string(s.Code)))
	}
	if failed {
		span.SetStatus(codes.Error, string(s.Code))
	}
	span.End(trace.WithTimestamp(s.StartedAt.Add(s.Duration)))
}
