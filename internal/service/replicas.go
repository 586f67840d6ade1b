// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// replicas are the servers on one database, with this one among them: the registry, the links to the
// others, and what this one may serve while the store does not answer it. Its methods say what a
// service that is alone does.
type replicas struct {
	set       *settings
	log       *slog.Logger
	id        string       // id is this replica's; "" for a service that is alone, and what follows is not set
	listener  net.Listener // where the others connect
	lease     *lease.Lease
	isolation *isolation
	addresses *addressBook
	data      *data
	store     *store.Store
	access    *accessChanges
	peers     *peers.Peers
	reached   atomic.Bool // the service was ready once
}

// alone reports whether the service has no replicas.
func (r *replicas) alone() bool { return r.id == "" }

func (r *replicas) open(ctx context.Context) (err error) {
	o := &r.set.Replica
	if !o.enabled() {
		return nil
	}
	r.listener, err = listen(ctx, "--relay-address", net.JoinHostPort(r.set.relayHost, r.set.relayPort))
	if err != nil {
		return err
	}
	r.id = account.NewID(account.PrefixReplica, time.Now())
	if clock := r.set.leaseClock; clock != nil {
		r.lease = lease.NewWithClock(o.Lease, *clock)
	} else {
		r.lease = lease.New(o.Lease)
	}
	r.isolation = newIsolation(o.Lease, r.lease)
	return nil
}

// row returns how the store registers this replica; nil for a service that is alone.
func (r *replicas) row() (*membership.Replica, error) {
	if r.alone() {
		return nil, nil
	}
	_, port, err := net.SplitHostPort(r.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	return &membership.Replica{ID: r.id, RelayAddress: net.JoinHostPort(r.set.relayHost, port),
		Version: version.String(), BaseURL: r.set.baseURL.String(), Address: r.set.replicaAddress}, nil
}

// authenticate adds to the replica's row what makes the others announce its address.
func (r *replicas) authenticate(row *membership.Replica, key *seal.Key) {
	if r.alone() {
		return
	}
	r.addresses = newAddressBook(key, r.log)
	if row.Address != "" {
		row.AddressMAC = r.addresses.mac(row.ID, row.Address)
	}
}

// wire constructs the links to the other replicas, whom local answers.
func (r *replicas) wire(d *data, local *localReplica, windows *tunnel.WindowBudget) (err error) {
	r.data, r.store, r.access = d, d.store, local.access
	if r.alone() {
		return nil
	}
	r.peers, err = peers.New(peers.Options{
		ID: r.id, Key: d.key, Registry: r, Local: local, Lease: r.set.Replica.Lease,
		WindowBudget: windows, Logger: r.log, Dialer: r.set.dialPeer,
	})
	if err != nil {
		return fmt.Errorf("preparing the links to other replicas: %w", err)
	}
	local.traffic.UsePeers(r.id, r.peers)
	return nil
}

// Replicas implements peers.Registry.
func (r *replicas) Replicas(ctx context.Context) ([]peers.Replica, error) {
	rows, err := r.store.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	r.addresses.update(rows)
	all := make([]peers.Replica, len(rows))
	for i, row := range rows {
		all[i] = peers.Replica{ID: row.ID, RelayAddress: row.RelayAddress, Version: row.Version, Draining: row.Draining}
	}
	return all, nil
}

// run starts what a replica does beside serving: it beats, keeps the links to the others, and tells
// the clients of tunnels of them.
func (r *replicas) run(serving context.Context, tasks *group, tunnels *tunnel.Server) {
	if r.alone() {
		return
	}
	r.isolation.setBeaten(r.lease.Now()) // it has just joined
	tasks.try(func() error {
		return r.store.Beat(serving, func(began time.Duration) {
			r.isolation.setBeaten(began)
			r.lease.Beaten(began)
		})
	})
	tasks.try(func() error {
		if err := r.peers.Serve(serving, r.listener); serving.Err() == nil {
			return err
		}
		return nil
	})
	tasks.run(serving, r.peers.Run)
	tasks.Go(func() { r.announce(serving, tunnels) })
}

// awaitPeers waits, for 5 s at most, until the other replicas were dialed: one that serves before
// knows of no agent of theirs, and would answer that endpoints are offline. Clients come as soon as
// this replica is registered, before it is ready for a balancer.
func (r *replicas) awaitPeers(ctx context.Context) {
	for range 500 {
		if r.alone() || r.peers.HasDialed() || !timer.Sleep(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// announceInterval is how often number and addresses of replicas are compared with what clients were
// told.
const announceInterval = time.Second

// announce tells agents and forwarders how many replicas there are, and their addresses, when
// that changes, and watches the clock.
func (r *replicas) announce(ctx context.Context, tunnels *tunnel.Server) {
	told, warned := r.Count(), false
	var toldAddresses []tunnel.ReplicaAddress
	for timer.Sleep(ctx, announceInterval) {
		warned = r.warnOfClock(warned)
		r.isolation.update(r.peers.Status())
		n, addresses := r.Count(), r.addresses.addresses()
		if n != told || !slices.Equal(addresses, toldAddresses) {
			told, toldAddresses = n, addresses
			tunnels.SetReplicas(n, addresses...)
		}
	}
}

// warnOfClock logs when this machine's clock has gone too far from the database's, unless it was
// logged already, and when it has come back. It reports whether it is too far.
func (r *replicas) warnOfClock(warned bool) bool {
	err := r.data.CheckClock()
	switch {
	case err != nil && !warned:
		r.log.Warn("people cannot log in through this server, and sessions end too early or too late here", "err", err)
	case err == nil && warned:
		r.log.Info("this machine's clock agrees with the database's again: people can log in")
	}
	return err != nil
}

// Count implements tunnelserver.Replicas.
func (r *replicas) Count() int {
	n := 1
	for _, p := range r.peers.Status() {
		if !p.Draining {
			n++
		}
	}
	return n
}

// rows returns the replicas as the dashboard shows them.
func (r *replicas) rows(draining bool) []dashboard.Replica {
	rows := []dashboard.Replica{{ID: r.id, Version: version.String(), Own: true, Draining: draining}}
	for _, p := range r.peers.Status() {
		rows = append(rows, dashboard.Replica{ID: p.ID, Version: p.Version, Linked: p.Connected, Draining: p.Draining,
			RoundTrip: p.RoundTrip})
	}
	return rows
}

// ready returns what keeps this server from taking traffic, or nil. Once a replica was ready, an
// outage of the store does not take it from its balancer, which would take all of them.
func (r *replicas) ready(ctx context.Context) error {
	if r.reached.Load() {
		return r.isolation.ready()
	}
	if err := r.data.ping(ctx); err != nil || r.alone() {
		return err
	}
	if !r.peers.HasDialed() {
		return errors.New("the other replicas, which have agents of their own, were not reached yet")
	}
	r.reached.Store(true)
	return nil
}

// PublishSessions implements tunnelserver.Replicas.
func (r *replicas) PublishSessions(ctx context.Context, c peers.Change) {
	if err := r.peers.Publish(ctx, c); err != nil {
		r.log.Warn("other replicas were not told of sessions; they compare them with the store", "sessions", c.IDs,
			"err", err)
	}
}

// PublishPolicy implements tunnelserver.Replicas.
func (r *replicas) PublishPolicy(ctx context.Context, accountID string) {
	r.access.AccessChanged(ctx, accountID)
}

// publishPeople makes the other replicas cut what they serve for sessions of people that are over.
func (r *replicas) publishPeople(ctx context.Context, accountID string, sessionIDs []string) error {
	return r.peers.Publish(ctx, peers.Change{Kind: peers.ChangePeople, AccountID: accountID, IDs: sessionIDs})
}

// publishAccess makes a change of an account true on the other replicas.
func (r *replicas) publishAccess(ctx context.Context, c peers.Change) {
	if r.alone() {
		return
	}
	if err := r.peers.Publish(ctx, c); err != nil {
		r.log.Error("other servers were not told of a change of an account; they find it in the store", "account",
			c.AccountID, "err", err)
	}
}

// registryTimeout bounds what a stopping replica writes of itself.
const registryTimeout = 5 * time.Second

// drainDelay keeps a stopping replica reachable while it reports that it is not ready: balancers
// send their new connections elsewhere before its listeners close. Kept connections of HTTP end with
// the answer to their next request. Forwarders use other replicas at once.
func (r *replicas) drainDelay(ctx context.Context) {
	marking, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	if err := r.store.SetDraining(marking); err != nil {
		r.log.Warn("the other replicas do not know that this one stops", "err", err)
	}
	r.log.Info("stopping: new connections are still accepted", "shutdown_delay", r.set.Replica.ShutdownDelay)
	timer.Sleep(ctx, r.set.Replica.ShutdownDelay)
}

// drainRelayed waits until the streams that other replicas have opened to agents here have ended, or
// ctx is done. Agents must have been told of the drain, so that the others open no further ones.
func (r *replicas) drainRelayed(ctx context.Context) {
	if r.alone() {
		return
	}
	if err := r.peers.WaitRelayed(ctx); err != nil {
		r.log.Warn("streams that other replicas have relayed here are cut: they did not end in time")
	}
}

// leave ends that this server is one of the replicas, after its sessions have ended. Others have
// done it where the end of the service is that it was fenced.
func (r *replicas) leave(end error) {
	if r.alone() || errors.Is(end, membership.ErrFenced) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registryTimeout)
	defer cancel()
	if err := r.store.Leave(ctx); err != nil {
		r.log.Warn("the other replicas will notice later that this one has stopped", "err", err)
	}
}

func (r *replicas) close() {
	if r.listener != nil {
		_ = r.listener.Close()
	}
}

// localReplica answers the other replicas. It implements peers.Local.
type localReplica struct {
	*isolation
	sessions *tunnelserver.Server
	people   *revoker
	access   *accessChanges
	traffic  *traffic.Recorder
}

// Holders implements peers.Local.
func (l *localReplica) Holders(q peers.Query) []peers.Holder {
	return slices.DeleteFunc(l.sessions.Holders(q), func(h peers.Holder) bool { return l.Check(&h.Endpoint) != nil })
}

// OpenMember implements peers.Local.
func (l *localReplica) OpenMember(
	ctx context.Context, accountID, id string, h tunnel.OpenHeader,
) (*tunnel.Stream, func(), error) {
	if err := l.Check(&account.Endpoint{AccountID: accountID, ID: id}); err != nil {
		return nil, nil, account.Errorf(account.CodeEndpointOffline, "%v", err)
	}
	return l.sessions.OpenMember(ctx, accountID, id, h)
}

// ReportLine implements peers.Local.
func (l *localReplica) ReportLine(accountID string, line tunnel.RequestLine) {
	l.sessions.ReportLine(accountID, line)
}

// Apply implements peers.Local.
func (l *localReplica) Apply(ctx context.Context, c peers.Change) error {
	switch c.Kind {
	case peers.ChangePeople:
		l.people.ApplyPeople(ctx, c.IDs)
		return nil
	case peers.ChangeSessions:
		return l.sessions.ApplySessions(ctx, c)
	case peers.ChangeAccess:
		return l.access.apply(ctx, c)
	}
	return account.Errorf(account.CodeInvalid, "a change of kind %q is unknown to this version", c.Kind)
}

// StoreAge implements peers.Local.
func (l *localReplica) StoreAge() time.Duration { return l.storeAge() }

// AnswerTraffic implements peers.Local.
func (l *localReplica) AnswerTraffic(question []byte) ([]byte, error) {
	return l.traffic.Answer(question)
}
