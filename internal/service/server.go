// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/backend"
	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/internal/service/edge"
	"github.com/fairlead-dev/fairlead/internal/service/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/service/edge/public"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/ticketkeys"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Limits of the API's connections.
const (
	apiHeaderTimeout = 10 * time.Second
	apiIdleTimeout   = 2 * time.Minute
	apiMaxHeader     = 64 << 10
)

// service is every part of a running fairlead-server.
type service struct {
	opt Options
	settings
	log             *slog.Logger
	store           *store.Store
	clusterTokens   *clustertoken.Checker // tokens of ServiceAccounts
	issuers         *clustertoken.Issuers
	key             *seal.Key
	serverLock      *store.ServerLock
	certs           *pki.Source
	ticketKeys      *ticketkeys.Keys
	meter           *requestMeter
	traffic         *traffic.Recorder // the recorder that meter feeds
	edge            *edge.Edge
	backends        *backend.Resolver
	backendTrees    treeCache
	backendSwitches chan account.ActiveChildChange
	staticGuard     *backend.Guard
	sessions        *tunnelserver.Server
	api             apiserver.Handler
	tlsListener     *tlsListener
	apiServer       *http.Server
	healthServer    *http.Server // nil without --metrics-addr
	healthListener  net.Listener
	probeServer     *http.Server // nil without --health-addr
	probeListener   net.Listener

	public                  *public.Server // nil without --public-http-addr and --public-https-addr
	publicHTTP, publicHTTPS net.Listener
	publicCerts             *public.Certificates

	geo *geo.Databases // nil without --geoip-database

	// Of people who log in at the edge.
	liveSessions      *live.Registry // what is being served for them
	loginStore        account.Logins
	loginCertificates *loginCertificates
	revoker           account.Revoker
	localRevoker      *revoker
	lease             *lease.Lease // nil without replicas

	replica *replica // nil: this server is alone
	tunnels *tunnel.Server
	windows *tunnel.WindowBudget // shared by all tunnel connections

	draining atomic.Bool
	tasks    sync.WaitGroup
	closers  []func() // what open has opened, to be closed in reverse
}

// Run runs the service until ctx is done, and then stops it: live traffic may end within
// Options.DrainTimeout. The error is written for the person who started it; nil after an orderly
// stop.
func Run(ctx context.Context, o Options) error {
	set, err := o.parse()
	if err != nil {
		return err
	}
	err = runOnce(ctx, o, set)
	for beginAnew(ctx, err) {
		o.Logger.Error("the other replicas took this one for dead; it begins anew", "err", err)
		err = runOnce(ctx, o, set)
	}
	return err
}

// runOnce runs the service until ctx is done, or it cannot go on.
func runOnce(ctx context.Context, o Options, set settings) error {
	s := &service{opt: o, settings: set, log: o.Logger, meter: newRequestMeter(o.MetricsSeries),
		windows: tunnel.NewWindowBudget(0)}
	s.traffic = s.meter.traffic
	if o.onTraffic != nil {
		o.onTraffic(s.traffic)
	}
	defer s.close()
	if err := s.open(ctx); err != nil {
		if store.DiskFull(err) {
			return o.diskFull(err)
		}
		return err
	}
	if err := s.wire(); err != nil {
		return err
	}
	return s.run(ctx)
}

// open opens all resources that can fail (listeners, files, the store), before anything is served.
func (s *service) open(ctx context.Context) error {
	listener, err := listen(ctx, "--addr", s.opt.Addr)
	if err != nil {
		return err
	}
	s.onClose(func() { _ = listener.Close() })
	if s.opt.MetricsAddr != "" {
		if s.healthListener, err = listen(ctx, "--metrics-addr", s.opt.MetricsAddr); err != nil {
			return err
		}
		s.onClose(func() { _ = s.healthListener.Close() })
	}
	if s.opt.HealthAddr != "" {
		if s.probeListener, err = listen(ctx, "--health-addr", s.opt.HealthAddr); err != nil {
			return err
		}
		s.onClose(func() { _ = s.probeListener.Close() })
	}
	if err := s.openObservability(ctx); err != nil {
		return err
	}
	if s.baseURL == nil {
		if s.baseURL, err = defaultBaseURL(listener.Addr()); err != nil {
			return err
		}
	}
	if err := s.openPublic(ctx); err != nil {
		return err
	}
	if err := s.openGeo(); err != nil {
		return err
	}
	if err := s.openReplica(ctx); err != nil {
		return err
	}
	if err := s.openData(ctx); err != nil {
		return err
	}
	s.tlsListener = &tlsListener{
		listener: listener, tls: serverTLS(s.certs.GetCertificate), http: framing.NewListener(),
		unauthenticated: newUnauthenticatedLimiter(cmp.Or(s.opt.maxUnauthenticated, maxUnauthenticated), s.log),
		log:             s.log,
	}
	s.ticketKeys = ticketkeys.New(s.key)
	s.ticketKeys.Install("service", s.tlsListener.tls)
	return nil
}

// openData opens what lies in the data directory.
func (s *service) openData(ctx context.Context) error {
	opt := store.Options{DataDir: s.opt.DataDir, DatabaseURL: s.opt.DatabaseURL, Grace: s.opt.EndpointGrace,
		KeepUsers: s.opt.IdentityRetention, OwnHosts: s.ownHosts(),
		KeepOperators: s.opt.OperatorRetention, BeatTimes: s.opt.beatTimes, OnCall: s.meter.store.countCall}
	var err error
	if opt.Replica, err = s.storeReplica(); err != nil {
		return err
	}
	lock, err := store.LockServer(ctx, opt)
	if err != nil {
		return err
	}
	s.onClose(func() {
		if err := lock.Release(); err != nil {
			s.log.Error("the server's lock could not be released", "err", err)
		}
	})
	opt.Lock, opt.BeatClock, opt.Clock, s.serverLock = lock, s.lease.Now, s.opt.storeClock, lock
	if s.key, err = s.opt.secretKey(); err != nil {
		return err
	}
	opt.Key = s.key
	s.authenticateReplica(opt.Replica)
	s.store, err = store.Open(ctx, opt)
	if err != nil {
		return err
	}
	s.onClose(func() {
		if err := s.store.Close(); err != nil {
			s.log.Error("the store could not be closed", "err", err)
		}
	})
	if s.opt.onStoreOpen != nil {
		s.opt.onStoreOpen(s.store)
	}
	if err := s.store.CheckKey(ctx); err != nil {
		return err
	}
	if err := s.store.BeginServerTerm(ctx); err != nil {
		return fmt.Errorf("starting on the store: %w", err)
	}
	if err := s.openCertificate(ctx); err != nil {
		return err
	}
	return bootstrap(ctx, s.store, &s.opt, bootstrapMessage{BaseURL: s.baseURL.String(), CAFingerprint: s.fingerprint(),
		DataDir: s.opt.DataDir, Postgres: s.opt.DatabaseURL != ""})
}

// openCertificate opens the certificate of the service's own listener. The authority lies where the
// store does, so that every server on a database has the same.
func (s *service) openCertificate(ctx context.Context) (err error) {
	o := pki.Options{
		Dir: s.opt.DataDir, Names: s.certificateNames(), CertFile: s.opt.TLSCert, KeyFile: s.opt.TLSKey,
		Logger: s.log,
	}
	if s.opt.DatabaseURL != "" {
		o.Store = s.store
	}
	s.certs, err = pki.Open(ctx, o)
	return err
}

func listen(ctx context.Context, field, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %q: the port is in use; stop the program that listens there, or choose another port",
			field, addr)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s %q: this user may not listen there; choose a port above 1023", field, addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s %q: no network interface of this machine has the address; choose another", field,
			addr)
	case err != nil:
		return nil, fmt.Errorf("listening on %s %s: %w", field, addr, err)
	}
	return l, nil
}

// wire constructs the parts that serve, and joins them.
func (s *service) wire() error {
	if err := s.wireReplica(); err != nil {
		return err
	}
	s.wireBackends()
	s.wireLogins()
	s.wireClusterTokens()
	o := edge.Options{
		ChooseAgent: s.chooseAgent, ChooseTunnel: s.chooseTunnel, GetEndpoint: s.store.Endpoint,
		GetInternal: s.internalEndpoint, ListPool: s.listPool,
		BackendAttempts: s.backendAttempts, DialStatic: s.staticGuard.Dial, Logins: s.newLoginHandler(),
		Meter: s.meter, Logger: s.log, OpenTimeout: s.opt.AgentOpenTimeout,
	}
	if s.replica != nil {
		o.Checker = s.replica.isolation
	}
	s.edge = edge.New(o)
	s.wireSessions()
	s.wirePublic()
	s.meter.addGauges(s.sessions.Stats, s.edge.Live)
	s.meter.addStoreGauges(s.store.WaitingWrites)
	s.meter.registry.MustRegister(s.certificates())
	s.meter.addRefusedConns(s.tlsListener.unauthenticated.refusals)
	s.meter.addReplicaMetrics(s)
	writes := &publishingStore{s.store, s.accessChanged}
	s.api = apiserver.New(apiserver.Options{
		SharedOptions: s.httpOptions(), Store: &apiStore{writes, s.clusterTokens}, CheckPolicy: compilePolicy,
		CheckStaticAddress: s.checkStaticAddress, VersionHeaders: s.opt.VersionHeaders,
		OnEndpointReported: s.meter.api.observeWatch,
	})
	s.apiServer = &http.Server{
		Handler: s.closeWhileStopping(s.withDashboard(s.api, writes)),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				s.tlsListener.unauthenticated.remove(c)
			}
		},
		ReadHeaderTimeout: apiHeaderTimeout, IdleTimeout: apiIdleTimeout, MaxHeaderBytes: apiMaxHeader,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if s.healthListener != nil {
		s.healthServer = healthServer(s.meter.registry, s.ready)
		s.healthServer.ErrorLog = s.apiServer.ErrorLog
	}
	if s.probeListener != nil {
		s.probeServer = healthServer(nil, s.ready)
		s.probeServer.ErrorLog = s.apiServer.ErrorLog
	}
	return nil
}

// connKey is the context key of a request's connection.
type connKey struct{}

// markAuthenticated ends the count of the connection as unauthenticated: a request on it has shown
// a valid key.
func (s *service) markAuthenticated(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		s.tlsListener.unauthenticated.remove(c)
	}
}

// serveStream hands a forwarder's stream to the edge.
func (s *service) serveStream(ctx context.Context, in tunnelserver.Incoming) {
	h := in.Stream.Header()
	if s.replica != nil && s.replica.isolation.Check(in.Endpoint) != nil {
		_ = in.Stream.Refuse(tunnel.RefusedDraining) // the forwarder tries another replica
		return
	}
	client, _ := netip.ParseAddrPort(h.ClientAddr) // the zero AddrPort for an invalid address
	s.edge.Serve(ctx, in.Stream, in.Endpoint, edge.ClientInfo{
		OperatorID: in.OperatorID, Cluster: in.Cluster, ClientAddr: h.ClientAddr, ClientIP: client.Addr().Unmap(),
		StatedPod: h.Pod, TraceID: h.TraceID, MaxWait: h.Deadline, Draining: in.Draining, ReportLine: in.ReportLine,
		Geo: s.geoLookup(client.Addr()),
	})
}

// ready returns what keeps the service from taking traffic, or nil.
func (s *service) ready(ctx context.Context) error {
	if s.draining.Load() {
		return errors.New("stopping")
	}
	if s.replica != nil && s.replica.ready.Load() {
		return s.replica.isolation.ready() // an outage of the store must not take all replicas from their balancer
	}
	if err := s.store.Ping(ctx); err != nil {
		msg := "the store does not answer"
		var reason *account.Error
		if errors.As(err, &reason) {
			msg = reason.Msg
		}
		return fmt.Errorf("%s: %s", s.store.DisplayName(), msg)
	}
	if s.replica != nil {
		if !s.replica.peers.HasDialed() {
			return errors.New("the other replicas, which have agents of their own, were not reached yet")
		}
		s.replica.ready.Store(true)
	}
	return nil
}

func (s *service) fingerprint() string {
	if ca := s.certs.CA(); ca != nil {
		return trust.Fingerprint(ca)
	}
	return ""
}

func (s *service) onClose(f func()) { s.closers = append(s.closers, f) }

// close closes what open has opened, in reverse order.
func (s *service) close() {
	for len(s.closers) > 0 {
		last := s.closers[len(s.closers)-1]
		s.closers = s.closers[:len(s.closers)-1]
		last()
	}
}
