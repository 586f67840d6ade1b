// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

func (f *forwarder) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !f.ready.Load() {
			http.Error(w, f.notReadyReason(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /status", f.serveStatus)
	return mux
}

func (f *forwarder) notReadyReason() string {
	select {
	case <-f.synced:
		if missing := f.missingRules(); missing != "" {
			return missing
		}
		reason := "no session with the edge yet: " + f.edge.status().Error
		if f.othersConnected.Load() {
			reason += "; the other forwarders have one"
		}
		return reason
	default:
		return "BoundEndpoints are not listed yet"
	}
}

// missingRules returns which rules are not known yet that the listeners need, or "".
func (f *forwarder) missingRules() string {
	listeners := f.listeners.status()
	return cmp.Or(f.access.missing(listeners), f.sealing.missing(listeners))
}

// server is one of the forwarder's own HTTP servers. A nil server is disabled.
type server struct {
	ln   net.Listener
	http *http.Server
}

// servers opens the listeners for health and metrics, so that a port in use is an error at startup.
func (f *forwarder) servers(ctx context.Context) (health, metrics *server, err error) {
	if health, err = newServer(ctx, f.options.HealthAddr, f.healthHandler()); err != nil {
		return nil, nil, fmt.Errorf("listening for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", f.metrics.handler())
	if metrics, err = newServer(ctx, f.options.MetricsAddr, mux); err != nil {
		health.close()
		return nil, nil, fmt.Errorf("listening for metrics: %w", err)
	}
	return health, metrics, nil
}

func newServer(ctx context.Context, addr string, h http.Handler) (*server, error) {
	if addr == "" {
		return nil, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &server{ln: ln, http: httpServer(h)}, nil
}

func httpServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
}

// run serves until ctx is done.
func (s *server) run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", s.ln.Addr(), err)
	}
	return nil
}

func (s *server) close() {
	if s != nil {
		_ = s.ln.Close()
	}
}
