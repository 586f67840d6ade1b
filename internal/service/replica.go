// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/service/edge"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// replica is what makes the service one of several; nil in a service that is alone.
type replica struct {
	id       string
	listener net.Listener // where the others connect
	peers    *peers.Peers
	ready    atomic.Bool // was ready once

	addresses *addressBook
	isolation *isolation
}

// openReplica opens the listener of the other replicas.
func (s *service) openReplica(ctx context.Context) error {
	o := &s.opt.Replica
	if !o.enabled() {
		return nil
	}
	host, port, err := net.SplitHostPort(o.RelayAddress)
	if err != nil {
		return err
	}
	l, err := listen(ctx, "--relay-address", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	s.onClose(func() { _ = l.Close() })
	s.replica = &replica{id: account.NewID(account.PrefixReplica, time.Now()), listener: l}
	if clock := s.opt.leaseClock; clock != nil {
		s.lease = lease.NewWithClock(o.Lease, *clock)
	} else {
		s.lease = lease.New(o.Lease)
	}
	s.replica.isolation = newIsolation(o.Lease, s.lease.Now)
	return nil
}

// storeReplica returns how the store registers this replica; nil for a service that is alone.
func (s *service) storeReplica() (*store.Replica, error) {
	if s.replica == nil {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(s.opt.Replica.RelayAddress)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(s.replica.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	r := &store.Replica{ID: s.replica.id, RelayAddress: net.JoinHostPort(host, port), Version: version.String(),
		BaseURL: s.baseURL.String()}
	r.Address = s.opt.Replica.clientAddress()
	return r, nil
}

// authenticateReplica adds to the replica's row what makes the others announce its address.
func (s *service) authenticateReplica(r *store.Replica) {
	if s.replica == nil {
		return
	}
	s.replica.addresses = newAddressBook(s.key, s.log)
	if r.Address != "" {
		r.AddressMAC = s.replica.addresses.mac(r.ID, r.Address)
	}
}

// wireReplica constructs the links to the other replicas.
func (s *service) wireReplica() (err error) {
	if s.replica == nil {
		return nil
	}
	s.replica.peers, err = peers.New(peers.Options{
		ID: s.replica.id, Key: s.key, Replicas: s.listReplicas, Local: localReplica{s}, Lease: s.opt.Replica.Lease,
		WindowBudget: s.windows, Logger: s.log, DialContext: s.opt.dialPeer,
	})
	if err != nil {
		return fmt.Errorf("preparing the links to other replicas: %w", err)
	}
	s.traffic.UsePeers(s.replica.id, s.replica.askTraffic, s.replica.peers.LastLeft)
	return nil
}

// drainRelayed waits until the streams that other replicas have opened to agents here have ended, or
// ctx is done. Agents must have been told of the drain, so that the others open no further ones.
func (s *service) drainRelayed(ctx context.Context) {
	if s.replica == nil {
		return
	}
	if err := s.replica.peers.WaitRelayed(ctx); err != nil {
		s.log.Warn("streams that other replicas have relayed here are cut: they did not end in time")
	}
}

// listReplicas returns the replicas of the store.
func (s *service) listReplicas(ctx context.Context) ([]peers.Replica, error) {
	rows, err := s.store.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	s.replica.addresses.update(rows)
	all := make([]peers.Replica, len(rows))
	for i, r := range rows {
		all[i] = peers.Replica{ID: r.ID, RelayAddress: r.RelayAddress, Version: r.Version, Draining: r.Draining}
	}
	return all, nil
}

// startReplica starts what a replica does beside serving: it beats, and keeps the links to the
// others.
func (s *service) startReplica(serving context.Context, failed chan<- error) {
	if s.replica == nil {
		return
	}
	s.replica.isolation.setBeaten(s.lease.Now()) // it has just joined
	s.tasks.Go(func() {
		err := s.store.Beat(serving, func(began time.Duration) {
			s.replica.isolation.setBeaten(began)
			s.lease.Beaten(began)
		})
		if err != nil {
			failed <- err
		}
	})
	s.tasks.Go(func() {
		if err := s.replica.peers.Serve(serving, s.replica.listener); err != nil && serving.Err() == nil {
			failed <- err
		}
	})
	s.tasks.Go(func() { s.replica.peers.Run(serving) })
	s.tasks.Go(func() { s.announceReplicas(serving) })
}

// announceInterval is how often number and addresses of replicas are compared with what clients were
// told.
const announceInterval = time.Second

// announceReplicas tells agents and forwarders how many replicas there are, and their addresses, when
// that changes, and watches the clock.
func (s *service) announceReplicas(ctx context.Context) {
	told, warned := s.replicaCount(), false
	var toldAddresses []tunnel.ReplicaAddress
	for timer.Sleep(ctx, announceInterval) {
		warned = s.warnOfClock(warned)
		s.replica.isolation.update(s.replica.peers.Status())
		n, addresses := s.replicaCount(), s.replica.addresses.addresses()
		if n != told || !slices.Equal(addresses, toldAddresses) {
			told, toldAddresses = n, addresses
			s.tunnels.SetReplicas(n, addresses...)
		}
	}
}

// checkClock returns an error while this machine's clock is too far from the database's, by which
// all replicas go. A server that is alone goes by its own.
func (s *service) checkClock() error {
	offset := s.store.ClockOffset()
	if offset.Abs() <= store.MaxClockOffset {
		return nil
	}
	return fmt.Errorf("this machine's clock is %s off the database's, and %s is the most it may be: set both by NTP",
		offset, store.MaxClockOffset)
}

// warnOfClock logs when this machine's clock has gone too far from the database's, unless it was
// logged already, and when it has come back. It reports whether it is too far.
func (s *service) warnOfClock(warned bool) bool {
	err := s.checkClock()
	switch {
	case err != nil && !warned:
		s.log.Warn("people cannot log in through this server, and sessions end too early or too late here", "err", err)
	case err == nil && warned:
		s.log.Info("this machine's clock agrees with the database's again: people can log in")
	}
	return err != nil
}

// replicaCount returns how many replicas accept sessions, with this one; 0 for a service that is
// alone.
func (s *service) replicaCount() int {
	if s.replica == nil {
		return 0
	}
	n := 1
	for _, p := range s.replica.peers.Status() {
		if !p.Draining {
			n++
		}
	}
	return n
}

// choose returns an agent that has a session with another replica, none of those in tried.
func (r *replica) choose(ctx context.Context, q peers.Query, tried []edge.Agent) (edge.Agent, error) {
	var remote []*peers.Member
	for _, a := range tried {
		if m, ok := a.(*peers.Member); ok {
			remote = append(remote, m)
		}
	}
	m, err := r.peers.Choose(ctx, q, remote)
	if err != nil {
		return nil, err // not m: a nil *Member is no nil Agent
	}
	return m, nil
}

// queryOf asks for the members that serve the endpoint's URL.
func queryOf(ep *account.Endpoint) peers.Query {
	return peers.Query{AccountID: ep.AccountID, Binding: ep.Bindings[0], Scheme: ep.Scheme, Host: ep.Host,
		Port: ep.Port}
}

// shutdownDelay returns how long a stopping server still accepts connections.
func (s *service) shutdownDelay() time.Duration {
	if s.replica == nil {
		return 0
	}
	return s.opt.Replica.ShutdownDelay
}

// drainDelay keeps a stopping replica reachable while it reports that it is not ready: balancers
// send their new connections elsewhere before its listeners close. Kept connections of HTTP end with
// the answer to their next request. Forwarders use other replicas at once.
func (s *service) drainDelay(ctx context.Context) {
	if s.replica == nil {
		return
	}
	s.edge.BeginStopping()
	marking, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	if err := s.store.SetDraining(marking); err != nil {
		s.log.Warn("the other replicas do not know that this one stops", "err", err)
	}
	s.log.Info("stopping: new connections are still accepted", "shutdown_delay", s.opt.Replica.ShutdownDelay)
	timer.Sleep(ctx, s.opt.Replica.ShutdownDelay)
}

// leave ends that this server is one of the replicas, after its sessions have ended. Others have
// done it where the end of the service is that it was fenced.
func (s *service) leave(end error) {
	if s.replica == nil || errors.Is(end, store.ErrFenced) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registryTimeout)
	defer cancel()
	if err := s.store.Leave(ctx); err != nil {
		s.log.Warn("the other replicas will notice later that this one has stopped", "err", err)
	}
}

// registryTimeout bounds what a stopping replica writes of itself.
const registryTimeout = 5 * time.Second

// localReplica answers the other replicas. It implements peers.Local.
type localReplica struct{ s *service }

// Holders implements peers.Local.
func (l localReplica) Holders(q peers.Query) []peers.Holder {
	return slices.DeleteFunc(l.s.sessions.Holders(q), func(h peers.Holder) bool {
		return l.s.replica.isolation.Check(&h.Endpoint) != nil
	})
}

// OpenMember implements peers.Local.
func (l localReplica) OpenMember(
	ctx context.Context, accountID, id string, h tunnel.OpenHeader,
) (*tunnel.Stream, func(), error) {
	if err := l.s.replica.isolation.Check(&account.Endpoint{AccountID: accountID, ID: id}); err != nil {
		return nil, nil, account.Errorf(account.CodeEndpointOffline, "%v", err)
	}
	return l.s.sessions.OpenMember(ctx, accountID, id, h)
}

// ReportLine implements peers.Local.
func (l localReplica) ReportLine(accountID string, line tunnel.RequestLine) {
	l.s.sessions.ReportLine(accountID, line)
}

// Apply implements peers.Local.
func (l localReplica) Apply(ctx context.Context, c peers.Change) error {
	switch c.Kind {
	case peers.ChangePeople:
		l.s.localRevoker.ApplyPeople(ctx, c.IDs)
		return nil
	case peers.ChangeSessions:
		err := l.s.sessions.ApplySessions(ctx, c.IDs, c.Code, c.Message)
		if err != nil && c.StoreAnswers {
			l.s.sessions.LeaveSessions(c.IDs)
			return nil
		}
		return err
	case peers.ChangeAccess:
		return l.s.applyAccess(ctx, c)
	}
	return account.Errorf(account.CodeInvalid, "a change of kind %q is unknown to this version", c.Kind)
}

// StoreAge implements peers.Local.
func (l localReplica) StoreAge() time.Duration { return l.s.replica.isolation.storeAge() }

// AnswerTraffic implements peers.Local.
func (l localReplica) AnswerTraffic(question []byte) ([]byte, error) {
	return l.s.traffic.Answer(question)
}

// askTraffic asks the other replicas what they have recorded of their traffic.
func (r *replica) askTraffic(ctx context.Context, question []byte) []traffic.PeerAnswer {
	answers := r.peers.AskTraffic(ctx, question)
	all := make([]traffic.PeerAnswer, len(answers))
	for i, a := range answers {
		all[i] = traffic.PeerAnswer{Replica: a.ReplicaID, Body: a.Body, Err: a.Err}
	}
	return all
}

// beginAnew reports whether a service that ended with err has to start again: the other replicas
// took it for dead.
func beginAnew(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, store.ErrFenced)
}

// serverID names this server in the rows of its sessions.
func (s *service) serverID() string {
	if s.replica != nil {
		return s.replica.id
	}
	return s.baseURL.Host
}

// closeWhileStopping names the replica in each answer, and ends the API's connections with the answer
// to their next request while a replica stops, so that clients turn to the others. Idle ones stay
// open until then: closing one while its client writes looks like a failure to the client.
func (s *service) closeWhileStopping(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.replica != nil {
			w.Header().Set(replicaHeader, s.replica.id)
		}
		if s.replica != nil && s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// refusesWrites reports whether the API refuses writes because the service stops. A replica
// does not: clients of kept connections cannot know of the others yet.
func (s *service) refusesWrites() bool { return s.replica == nil && s.draining.Load() }

// replicaRows returns a function that returns the replicas as the dashboard shows them; nil for a
// service that is alone.
func (s *service) replicaRows() func() []dashboard.Replica {
	if s.replica == nil {
		return nil
	}
	return func() []dashboard.Replica {
		rows := []dashboard.Replica{{ID: s.replica.id, Version: version.String(), Own: true,
			Draining: s.draining.Load()}}
		for _, p := range s.replica.peers.Status() {
			rows = append(rows, dashboard.Replica{ID: p.ID, Version: p.Version, Linked: p.Connected,
				Draining:  p.Draining,
				RoundTrip: p.RoundTrip})
		}
		return rows
	}
}
