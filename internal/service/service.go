// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// service is a running fairlead-server: its parts, in the order in which they open.
type service struct {
	set           *settings
	log           *slog.Logger
	control       *controlServer
	observability *observability
	edge          *edgeServer
	people        *people
	replicas      *replicas
	data          *data
	authorities   *authorities
	access        *accessChanges
	tasks         *group
}

// Run runs the service until ctx is done, and then stops it: live traffic may end within
// Options.DrainTimeout. The error is written for the person who started it; nil after an orderly
// stop.
func Run(ctx context.Context, o Options) error {
	set, err := o.parse()
	if err != nil {
		return err
	}
	err = runOnce(ctx, set)
	for ctx.Err() == nil && errors.Is(err, membership.ErrFenced) {
		o.Logger.Error("the other replicas took this one for dead; it begins anew", "err", err)
		err = runOnce(ctx, set)
	}
	return err
}

// runOnce runs the service until ctx is done, or it cannot go on.
func runOnce(ctx context.Context, set settings) error {
	s := newService(&set)
	defer s.close()
	if err := s.open(ctx); err != nil {
		if sqldb.DiskFull(err) {
			return set.diskFull(err)
		}
		return err
	}
	if err := s.wire(); err != nil {
		return err
	}
	return s.run(ctx)
}

func newService(set *settings) *service {
	log := set.Logger
	s := &service{set: set, log: log, observability: newObservability(set), replicas: &replicas{set: set, log: log},
		data: &data{set: set, log: log}, tasks: &group{failed: make(chan error, 6)}}
	s.control = &controlServer{set: set, log: log, replicas: s.replicas}
	s.edge = &edgeServer{public: &publicEdge{set: set, log: log}}
	s.people = &people{set: set, log: log, meter: s.observability.meter.sessions}
	return s
}

// open opens all resources that can fail (listeners, files, the store), before anything is served.
func (s *service) open(ctx context.Context) (err error) {
	if err := s.control.open(ctx); err != nil {
		return err
	}
	if err := s.observability.open(ctx, s.ready); err != nil {
		return err
	}
	if s.set.baseURL == nil {
		if s.set.baseURL, err = defaultBaseURL(s.control.listener.listener.Addr()); err != nil {
			return err
		}
	}
	if err := s.edge.public.open(ctx); err != nil {
		return err
	}
	if err := s.people.open(); err != nil {
		return err
	}
	if err := s.replicas.open(ctx); err != nil {
		return err
	}
	return s.data.open(ctx, s.replicas, s.observability.meter.store)
}

// wire constructs what the parts serve with, and joins them.
func (s *service) wire() error {
	windows := tunnel.NewWindowBudget(0) // shared by all tunnel connections
	meter := s.observability.meter
	s.access = &accessChanges{log: s.log, store: s.data.store, control: s.control, edge: s.edge, replicas: s.replicas,
		tasks: s.tasks}
	s.control.wireSessions(s.data, s.edge, meter, windows)
	s.authorities = &authorities{data: s.data, tunnels: s.control.tunnels, serverID: s.replicas.id, log: s.log}
	s.authorities.announce()
	s.people.wire(s.data, s.replicas, meter.traffic)
	s.edge.wire(s.set, s.data, s.control.sessions, s.replicas, s.people, meter)
	err := s.replicas.wire(s.data, &localReplica{isolation: s.replicas.isolation, sessions: s.control.sessions,
		people: s.people.local, access: s.access, traffic: meter.traffic}, windows)
	if err != nil {
		return err
	}
	ends := &certificates{service: s.data.certs, public: s.edge.public.certs, acme: s.edge.public.acme,
		logins: s.people.certificates}
	s.control.wireAPI(s, ends)
	s.observability.wire(s, ends)
	return nil
}

// ready returns what keeps the service from taking traffic, or nil.
func (s *service) ready(ctx context.Context) error {
	if s.control.draining.Load() {
		return errors.New("stopping")
	}
	return s.replicas.ready(ctx)
}

// close closes what open has opened and wire has constructed: those that use the store before it.
func (s *service) close() {
	s.people.close()
	s.edge.close()
	s.data.close()
	s.replicas.close()
	s.observability.close()
	s.control.close()
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

// group runs the service's goroutines.
type group struct {
	sync.WaitGroup
	failed chan error // why the service cannot go on; it has room for an error of each that may fail
}

// run starts functions that run until ctx is done.
func (g *group) run(ctx context.Context, loops ...func(context.Context)) {
	for _, loop := range loops {
		g.Go(func() { loop(ctx) })
	}
}

// try starts a function without whose work the service cannot go on, if it returns an error.
func (g *group) try(f func() error) {
	g.Go(func() {
		if err := f(); err != nil {
			g.failed <- err
		}
	})
}

// serve serves a listener until the server is closed.
func (g *group) serve(srv *http.Server, l net.Listener) {
	g.try(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// run serves until ctx is done, and stops.
func (s *service) run(ctx context.Context) error {
	// What is served outlives ctx by the drain; stopping then ends it.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	api, stopAPI := context.WithCancel(serving)
	defer stopServing()
	defer stopAPI()
	s.data.run(serving, s.tasks)
	s.people.run(serving, s.tasks)
	s.observability.run(serving, s.tasks)
	s.replicas.run(serving, s.tasks, s.control.tunnels)
	s.replicas.awaitPeers(ctx)
	s.control.run(serving, api, s.tasks)
	s.edge.run(serving, s.tasks)
	s.tasks.run(serving, s.access.run, s.authorities.run)
	err := s.replicas.checkAddress(ctx)
	if err == nil {
		s.logReady()
		select {
		case <-ctx.Done():
		case err = <-s.tasks.failed:
			s.log.Error("the service cannot go on", "err", err)
		}
		if !errors.Is(err, membership.ErrFenced) { // its sessions are over
			s.drain()
		}
	}
	stopAPI() // ends watches
	s.stop(stopServing, err)
	return err
}

// logReady logs that the service is up, with what clients need to trust it, and calls
// Options.OnReady.
func (s *service) logReady() {
	public := s.edge.public
	a := Addresses{Service: s.control.listener.listener.Addr(), Metrics: s.observability.metrics.addr(),
		Health: s.observability.probes.addr(), BaseURL: s.set.baseURL.String(), CAFingerprint: s.data.fingerprint()}
	args := []any{"addr", a.Service.String(), "base_url", a.BaseURL, "data_dir", s.set.DataDir, "database",
		s.data.store.DisplayName(), "store", s.data.store.StoreID()}
	if public.http != nil {
		a.HTTP = public.http.Addr()
	}
	if public.https != nil {
		a.HTTPS = public.https.Addr()
	}
	for _, one := range []struct {
		key  string
		addr net.Addr
	}{{"metrics_addr", a.Metrics}, {"health_addr", a.Health}, {"public_http_addr", a.HTTP},
		{"public_https_addr", a.HTTPS}} {
		if one.addr != nil {
			args = append(args, one.key, one.addr.String())
		}
	}
	if a.CAFingerprint != "" {
		args = append(args, "ca_sha256", a.CAFingerprint)
	}
	s.log.Info("fairlead-server is up", args...)
	if err := s.data.certs.Leaf().VerifyHostname(s.set.baseURL.Hostname()); err != nil {
		s.log.Warn("clients will not trust the certificate under the base URL", "base_url", a.BaseURL, "err", err)
	}
	if a.HTTP != nil && a.HTTPS == nil {
		s.log.Info("the public edge serves http only; https needs --public-https-addr and certificates")
	}
	if s.set.OnReady != nil {
		s.set.OnReady(a)
	}
}

// drain lets live traffic end: API writes get 503, forwarders hold new connections, requests under
// way are answered. It returns when nothing is live, the time is up, or Options.ForceStop is
// closed.
func (s *service) drain() {
	s.control.draining.Store(true)
	forced, force := context.WithCancel(context.Background())
	defer force()
	go func() {
		select {
		case <-s.set.ForceStop:
			force()
		case <-forced.Done():
		}
	}()
	if s.replicas.alone() {
		s.control.sessions.Drain(tunnel.RoleForwarder, s.set.DrainTimeout)
	} else {
		s.control.sessions.Drain(tunnel.RoleForwarder, s.set.Replica.ShutdownDelay+s.set.DrainTimeout)
		s.edge.edge.BeginStopping()
		s.replicas.drainDelay(forced)
	}
	started := time.Now()
	s.log.Info("stopping", "drain_timeout", s.set.DrainTimeout, "connections", s.edge.edge.Live())
	ctx, cancel := context.WithTimeout(forced, s.set.DrainTimeout)
	defer cancel()
	if err := s.edge.edge.Drain(ctx); err != nil {
		s.log.Warn("connections are cut: they did not end in time", "connections", s.edge.edge.Live(), "after",
			time.Since(started))
	}
	s.control.sessions.Drain(tunnel.RoleAgent, 0)
	s.replicas.drainRelayed(ctx)
}

// stopTimeout bounds what remains after the drain: answers of the API and closing handshakes.
const stopTimeout = 2 * time.Second

// stop ends everything that is still served and waits for it. end is why the service cannot go on,
// or nil.
func (s *service) stop(stopServing context.CancelFunc, end error) {
	s.control.draining.Store(true) // drain was not called after some errors
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	s.control.close()
	s.edge.public.stop(ctx)
	s.control.stop(ctx)
	stopServing()
	s.control.wait()
	s.edge.edge.Close()
	s.observability.stop()
	s.tasks.Wait()
	s.replicas.leave(end)
	s.log.Info("stopped")
}
