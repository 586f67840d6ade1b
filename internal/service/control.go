// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/service/hsts"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// Limits of the API's connections.
const (
	apiHeaderTimeout = 10 * time.Second
	apiIdleTimeout   = 2 * time.Minute
	apiMaxHeader     = 64 << 10
)

// serviceListener names the service's own listener among those with ticket keys.
const serviceListener = "service"

// controlServer is what the service's own listener leads to: sessions of agents and forwarders, the
// API and the dashboard.
type controlServer struct {
	set           *settings
	log           *slog.Logger
	listener      *tlsListener
	issuers       *clustertoken.Issuers
	clusterTokens *clustertoken.Checker // tokens of ServiceAccounts
	sessions      *tunnelserver.Server
	tunnels       *tunnel.Server
	api           apiserver.Handler
	http          *http.Server
	replicas      *replicas
	draining      atomic.Bool // the service stops
}

func (c *controlServer) open(ctx context.Context) error {
	l, err := listen(ctx, "--addr", c.set.Addr)
	if err != nil {
		return err
	}
	c.listener = &tlsListener{
		listener: l, http: framing.NewListener(), log: c.log,
		unauthenticated: newUnauthenticatedLimiter(cmp.Or(c.set.maxUnauthenticated, maxUnauthenticated), c.log),
	}
	return nil
}

// wireSessions constructs the server of tunnel sessions, whose streams go to the edge.
func (c *controlServer) wireSessions(
	d *data, e *edgeServer, meter *requestMeter, windows *tunnel.WindowBudget,
) {
	c.issuers = clustertoken.NewIssuers(d.store, login.NewClient(c.set.loginAllow), c.log)
	c.clusterTokens = clustertoken.New(clustertoken.Options{Store: d.store, Issuers: c.issuers,
		BaseURL: c.set.baseURL.String(), Logger: c.log, Clock: c.set.storeClock})
	o := tunnelserver.Options{
		Store: &tunnelStore{d.store, c.clusterTokens}, CheckPolicy: compilePolicy,
		Edge: e, Meter: meter, StoreID: d.store.StoreID(), ServerID: c.set.baseURL.Host, Version: version.String(),
		Logger: c.log,
	}
	if r := c.replicas; !r.alone() {
		o.ServerID, o.ReplicaID, o.Replicas, o.Legs = r.id, r.id, r, d.store
	}
	c.sessions = tunnelserver.New(o)
	pairs := tunnel.NewPairBudget()
	meter.addSealedMetrics(pairs)
	c.tunnels = tunnel.NewServer(tunnel.ServerConfig{
		Handler: c.sessions, WindowBudget: windows, PairBudget: pairs,
		OnWelcome: func(conn *tls.Conn) { c.listener.unauthenticated.remove(conn) }, Logger: c.log,
	})
	c.listener.tunnels, c.listener.tls = c.tunnels, serverTLS(d.certs.GetCertificate)
	c.listener.tls.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c.listener.unauthenticated.spoke(hello.Conn)
		return nil, nil // the listener's own
	}
	d.ticketKeys.Install(serviceListener, c.listener.tls)
}

func (c *controlServer) wireAPI(s *service, ends *certificates) {
	d, b, meter := s.data, s.edge.backends, s.observability.meter
	shared := httpkit.SharedOptions{
		SessionEnder: c.sessions, Revoker: s.people.revoker, Backends: b,
		Redactor: d.key, MatchSelectors: compileSelectors, Meter: meter.api,
		BaseURL: c.set.baseURL.String(), OnAuthenticated: c.markAuthenticated, Logger: c.log,
	}
	if c.replicas.alone() { // clients of kept connections cannot know of other replicas yet
		shared.Draining = &c.draining
	}
	writes := &publishingStore{d.store, s.access}
	c.api = apiserver.New(apiserver.Options{
		SharedOptions: shared, Store: &apiStore{writes, c.clusterTokens}, CheckPolicy: compilePolicy,
		VersionHeaders: c.set.VersionHeaders,
	})
	o := dashboard.Options{
		SharedOptions: shared, Store: writes,
		GeoIP: s.people.geo != nil, Version: version.String(), TrustedProxies: c.set.trustedProxies,
		CheckPolicy: compilePolicy, Sealer: d.key, Traffic: meter.traffic, Certificates: ends,
	}
	if !c.replicas.alone() {
		o.Replicas = c
	}
	c.http = &http.Server{
		Handler: c.closeWhileStopping(withDashboard(s.authorities.announceTo(c.api), dashboard.New(o))),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateClosed { // a connection that is taken over is a tunnel's
				c.listener.unauthenticated.remove(conn)
			}
		},
		ReadHeaderTimeout: apiHeaderTimeout, IdleTimeout: apiIdleTimeout, MaxHeaderBytes: apiMaxHeader,
		ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
	}
}

// withTunnel returns a handler that serves tunnel connections that come as WebSockets, as acceptConns
// does native ones, and passes other requests on. ctx ends those connections.
func (c *controlServer) withTunnel(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != tunnel.WebSocketPath {
			next.ServeHTTP(w, r)
			return
		}
		c.listener.conns.Add(1) // while the request is active, which stop waits for
		defer c.listener.conns.Done()
		err := c.tunnels.ServeWebSocket(ctx, w, r)
		if err != nil {
			c.log.Debug("tunnel connection ended", "remote", r.RemoteAddr, "err", err)
		}
		if !errors.Is(err, tunnel.ErrNoWebSocket) { // the connection was taken over, and has ended
			c.markAuthenticated(r)
		}
	})
}

// connKey is the context key of a request's connection.
type connKey struct{}

// markAuthenticated ends the count of the connection as unauthenticated: a request on it has shown
// a valid key, or it has ended.
func (c *controlServer) markAuthenticated(r *http.Request) {
	if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		c.listener.unauthenticated.remove(conn)
	}
}

// closeWhileStopping names the replica in each answer, and ends the API's connections with the answer
// to their next request while a replica stops, so that clients turn to the others. Idle ones stay
// open until then: closing one while its client writes looks like a failure to the client.
func (c *controlServer) closeWhileStopping(next http.Handler) http.Handler {
	if c.replicas.alone() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(replicaHeader, c.replicas.id)
		if c.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Replicas implements dashboard.Replicas.
func (c *controlServer) Replicas() []dashboard.Replica { return c.replicas.rows(c.draining.Load()) }

// run serves the listener: sessions until serving is done, requests until stop. Contexts of requests
// are made from api.
func (c *controlServer) run(serving, api context.Context, tasks *group) {
	c.http.BaseContext = func(net.Listener) context.Context { return api }
	c.http.Handler = c.withTunnel(serving, c.http.Handler)
	tasks.run(serving, c.sessions.Run, c.issuers.Run)
	// in the same WaitGroup as the connections that it accepts, so that none is added while wait
	// waits
	c.listener.conns.Go(func() { c.listener.acceptConns(serving) })
	tasks.serve(c.http, c.listener.http)
}

// stop answers the requests of the API that are under way, until ctx is done.
func (c *controlServer) stop(ctx context.Context) {
	if err := c.http.Shutdown(ctx); err != nil {
		_ = c.http.Close()
	}
	_ = c.listener.http.Close()
}

// wait waits until the connections of tunnels have ended, and their sessions have marked their
// endpoints offline.
func (c *controlServer) wait() {
	c.listener.conns.Wait()
	c.sessions.Wait()
}

func (c *controlServer) close() {
	if c.listener != nil {
		_ = c.listener.listener.Close()
	}
}

// withDashboard returns a handler that serves the dashboard under its path and passes other paths
// to the API. It redirects a browser from "/" to the dashboard.
func withDashboard(api, ui http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			hsts.Set(w.Header(), r.Host)
		}
		switch path := r.URL.Path; {
		case path == strings.TrimSuffix(dashboard.Path, "/"), path == "/" && wantsHTML(r):
			http.Redirect(w, r, dashboard.Path, http.StatusSeeOther)
		case strings.HasPrefix(path, dashboard.Path):
			ui.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// wantsHTML reports whether a browser asks for a page: clients of the API send a key and do not ask
// for HTML.
func wantsHTML(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Authorization") == "" &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}
