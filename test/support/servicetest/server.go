// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// MaxWait bounds every wait of a test for what has to happen at once.
const MaxWait = 3 * time.Minute

// Context returns a context that ends with the test, or after MaxWait.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), MaxWait)
	t.Cleanup(cancel)
	return ctx
}

// Receive waits for a value from a channel, which what names in the failure.
func Receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(MaxWait):
		t.Fatalf("no %s within %s", what, MaxWait)
		panic("unreachable")
	}
}

// Server is a whole service in the test's process.
type Server struct {
	T         testing.TB
	Options   service.Options
	Addrs     service.Addresses
	Log       *logbuffer.Buffer
	Stop      context.CancelFunc // begins an orderly stop
	ForceStop chan struct{}      // of Options
	Finished  chan error         // gets what Run returned

	APIKey, Authtoken string // the first ones, of a person and of agents
	OperatorID        string // of RegisterOperator; "" before
}

// Start runs a service on ports of its own, with the options changed by change, until the test
// ends.
func Start(t testing.TB, change ...func(*service.Options)) *Server {
	t.Helper()
	r := &Server{T: t, Log: &logbuffer.Buffer{}, ForceStop: make(chan struct{}), Finished: make(chan error, 1)}
	up := make(chan service.Addresses, 1)
	r.Options = service.Options{
		ListenOptions: service.ListenOptions{Addr: "127.0.0.1:0"},
		DataOptions: service.DataOptions{DataDir: filepath.Join(t.TempDir(), "data"),
			EndpointGrace: 10 * time.Minute},
		ObservabilityOptions: service.ObservabilityOptions{MetricsAddr: "127.0.0.1:0", MetricsSeries: 2000,
			AccessLogSample: 1},
		DrainTimeout: 10 * time.Second,
		Logger:       slog.New(slog.NewJSONHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		ForceStop:    r.ForceStop, OnReady: func(a service.Addresses) { up <- a },
	}
	for _, f := range change {
		f(&r.Options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.Stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Finished <- service.Run(ctx, r.Options)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("the service's log:\n%s", r.Log)
		}
	})
	select {
	case r.Addrs = <-up:
	case err := <-r.Finished:
		t.Fatalf("the service did not start: %v", err)
	case <-time.After(MaxWait):
		t.Fatal("the service did not come up")
	}
	r.readSecrets()
	return r
}

// readSecrets reads the first API key and authtoken from the bootstrap file; there is none when the
// test bootstraps in another way.
func (r *Server) readSecrets() {
	r.T.Helper()
	b, err := os.ReadFile(filepath.Join(r.Options.DataDir, service.BootstrapFileName))
	if err != nil {
		return // a test that bootstraps in its own way
	}
	r.APIKey = regexp.MustCompile(`flk_[\w-]+`).FindString(string(b))
	r.Authtoken = regexp.MustCompile(`flt_[\w-]+`).FindString(string(b))
}

// OpenStore opens the store beside the running service, as the commands do.
func (r *Server) OpenStore() *store.Store {
	r.T.Helper()
	st, err := store.Open(Context(r.T), store.Options{DataDir: r.Options.DataDir, DatabaseURL: r.Options.DatabaseURL})
	must.Succeed(r.T, err)
	r.T.Cleanup(func() { _ = st.Close() })
	return st
}

// RunTunnelClient runs a tunnel client until the test ends; ended gets what Run returned.
func (r *Server) RunTunnelClient(cfg tunnel.ClientConfig) (c *tunnel.Client, stop func(), ended <-chan error) {
	r.T.Helper()
	cfg.Address, cfg.TLS, cfg.MaxBackoff = r.Addrs.Service.String(), r.ClientTLS(), 300*time.Millisecond
	c = tunnel.NewClient(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	result, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		result <- c.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	r.T.Cleanup(stop)
	return c, stop, result
}

// ReadAll reads a body to its end.
func ReadAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	must.Succeed(t, err)
	return string(b)
}

// AllowLoopback allows static backends on the loopback interface.
func AllowLoopback(o *service.Options) { o.StaticAllow = []string{"127.0.0.0/8"} }

// GetHealth requests a path of the health listener and returns status and body.
func (r *Server) GetHealth(path string) (int, string) {
	r.T.Helper()
	req, err := http.NewRequestWithContext(Context(r.T), "GET", "http://"+r.Addrs.Metrics.String()+path, nil)
	must.Succeed(r.T, err)
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	must.Succeed(r.T, err)
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode, ReadAll(r.T, res.Body)
}

// ScrapeMetrics returns the service's metrics as text.
func (r *Server) ScrapeMetrics() string {
	_, body := r.GetHealth("/metrics")
	return body
}

// StartError runs a service that must refuse to start, with the options changed by change, and
// returns why it does; nil when it is ready.
func StartError(t testing.TB, change ...func(*service.Options)) error {
	t.Helper()
	ctx, cancel := context.WithCancel(Context(t))
	o := service.Options{Logger: slog.New(slog.DiscardHandler), OnReady: func(service.Addresses) { cancel() }}
	o.Addr, o.DataDir, o.AccessLogSample, o.EndpointGrace = "127.0.0.1:0", t.TempDir(), 1, time.Minute
	for _, f := range change {
		f(&o)
	}
	return service.Run(ctx, o)
}

// StopAndWait asks the service to stop and returns what Run returned.
func (r *Server) StopAndWait() error {
	r.Stop()
	return Receive(r.T, r.Finished, "end of the service")
}

// Eventually polls until a condition holds, which what names in the failure.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick, ctx := time.NewTicker(10*time.Millisecond), Context(t)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", MaxWait, what)
		}
	}
}
