// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// storeSweepInterval is how often the store's periodic cleanup runs.
const storeSweepInterval = time.Second

// run serves until ctx is done, and stops.
func (s *service) run(ctx context.Context) error {
	// What is served outlives ctx by the drain; stopping then ends it.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	api, stopAPI := context.WithCancel(serving)
	defer stopServing()
	defer stopAPI()
	s.apiServer.BaseContext = func(net.Listener) context.Context { return api }

	for _, run := range []func(context.Context){s.certs.Run, s.ticketKeys.Run, s.sessions.Run, s.issuers.Run, s.sweep,
		s.store.Listen, s.recordSwitches, s.applyAccessChanges, s.sweepSessions} {
		s.tasks.Go(func() { run(serving) })
	}
	s.startGeo(serving)
	s.tasks.Go(func() { s.liveSessions.Run(serving, s.countLeaseEnded) })
	// in the same WaitGroup as the connections that it accepts, so that none is added while stop
	// waits
	s.tlsListener.conns.Go(func() { s.tlsListener.acceptConns(serving) })
	s.startMetrics(serving)
	failed := make(chan error, 6)
	s.tasks.Go(func() {
		if err := s.serverLock.Maintain(serving, s.logLock); err != nil {
			failed <- err
		}
	})
	s.startReplica(serving, failed)
	serve := func(srv *http.Server, l net.Listener) {
		s.tasks.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	serve(s.apiServer, s.tlsListener.http)
	if s.healthServer != nil {
		serve(s.healthServer, s.healthListener)
	}
	if s.probeServer != nil {
		serve(s.probeServer, s.probeListener)
	}
	s.startPublic(serving)
	err := s.checkReplicaAddress(ctx)
	if err == nil {
		s.logReady()
		select {
		case <-ctx.Done():
		case err = <-failed:
			s.log.Error("the service cannot go on", "err", err)
		}
		if !errors.Is(err, store.ErrFenced) { // its sessions are over
			s.drain()
		}
	}
	stopAPI() // ends watches
	s.stop(stopServing, err)
	return err
}

// logLock logs that the lock of the database is lost, or held again. While it is lost the store
// refuses writes.
func (s *service) logLock(held bool, why error) {
	if held {
		s.log.Info("the server's lock of the database is held again; writes go on")
		return
	}
	s.log.Error("the server's lock of the database is lost; writes are refused until it is held again", "err", why)
}

// logReady logs that the service is up, with what clients need to trust it, and calls
// Options.OnReady.
func (s *service) logReady() {
	a := Addresses{Service: s.tlsListener.listener.Addr(), BaseURL: s.baseURL.String(), CAFingerprint: s.fingerprint()}
	args := []any{"addr", a.Service.String(), "base_url", a.BaseURL, "data_dir", s.opt.DataDir, "database",
		s.store.DisplayName(), "store", s.store.StoreID()}
	if s.healthListener != nil {
		a.Metrics = s.healthListener.Addr()
		args = append(args, "metrics_addr", a.Metrics.String())
	}
	if s.probeListener != nil {
		a.Health = s.probeListener.Addr()
		args = append(args, "health_addr", a.Health.String())
	}
	if a.HTTP, a.HTTPS = s.publicAddrs(); a.HTTP != nil {
		args = append(args, "public_http_addr", a.HTTP.String())
	}
	if a.HTTPS != nil {
		args = append(args, "public_https_addr", a.HTTPS.String())
	}
	if a.CAFingerprint != "" {
		args = append(args, "ca_sha256", a.CAFingerprint)
	}
	s.log.Info("fairlead-server is up", args...)
	if err := s.certs.Leaf().VerifyHostname(s.baseURL.Hostname()); err != nil {
		s.log.Warn("clients will not trust the certificate under the base URL", "base_url", a.BaseURL, "err", err)
	}
	if a.HTTP != nil && a.HTTPS == nil {
		s.log.Info("the public edge serves http only; https needs --public-https-addr and certificates")
	}
	if s.opt.OnReady != nil {
		s.opt.OnReady(a)
	}
}

// drain lets live traffic end: API writes get 503, forwarders hold new connections, requests under
// way are answered. It returns when nothing is live, the time is up, or Options.ForceStop is
// closed.
func (s *service) drain() {
	s.draining.Store(true)
	forced, force := context.WithCancel(context.Background())
	defer force()
	go func() {
		select {
		case <-s.opt.ForceStop:
			force()
		case <-forced.Done():
		}
	}()
	s.sessions.Drain(tunnel.RoleForwarder, s.shutdownDelay()+s.opt.DrainTimeout)
	s.drainDelay(forced)
	started := time.Now()
	s.log.Info("stopping", "drain_timeout", s.opt.DrainTimeout, "connections", s.edge.Live())
	ctx, cancel := context.WithTimeout(forced, s.opt.DrainTimeout)
	defer cancel()
	if err := s.edge.Drain(ctx); err != nil {
		s.log.Warn("connections are cut: they did not end in time", "connections", s.edge.Live(), "after",
			time.Since(started))
	}
	s.sessions.Drain(tunnel.RoleAgent, 0)
	s.drainRelayed(ctx)
}

// stopTimeout bounds what remains after the drain: answers of the API and closing handshakes.
const stopTimeout = 2 * time.Second

// stop ends everything that is still served and waits for it. end is why the service cannot go on,
// or nil.
func (s *service) stop(stopServing context.CancelFunc, end error) {
	s.draining.Store(true) // drain was not called after some errors
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = s.tlsListener.listener.Close()
	s.stopPublic(ctx)
	if err := s.apiServer.Shutdown(ctx); err != nil {
		_ = s.apiServer.Close()
	}
	_ = s.tlsListener.http.Close()
	stopServing()
	s.tlsListener.conns.Wait() // sessions go down and mark their endpoints offline
	s.sessions.Wait()
	s.edge.Close()
	if s.healthServer != nil {
		_ = s.healthServer.Close()
	}
	if s.probeServer != nil {
		_ = s.probeServer.Close()
	}
	s.tasks.Wait()
	s.leave(end)
	s.log.Info("stopped")
}

// sweep runs the store's periodic cleanup until ctx is done.
func (s *service) sweep(ctx context.Context) {
	failing := false
	for timer.Sleep(ctx, storeSweepInterval) {
		err := s.store.Sweep(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Error("sweeping the store", "err", err)
		}
		failing = err != nil
	}
}
