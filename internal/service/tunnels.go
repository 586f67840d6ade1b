// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/tls"

	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// wireSessions constructs the server of tunnel sessions.
func (s *service) wireSessions() {
	o := tunnelserver.Options{
		Store: &tunnelStore{s.store, s.clusterTokens}, CheckPolicy: compilePolicy,
		OnBind: s.warnUnreachable, OnBindResult: s.meter.api.countBind,
		StoreID: s.store.StoreID(), ServerID: s.serverID(), Version: version.String(),
		Serve: s.serveStream, OnOpen: s.meter.countIncomingStream, OnHello: s.meter.countHello, Logger: s.log,
	}
	if s.replica != nil {
		o.ReplicaID, o.Replicas, o.Legs, o.Publish = s.replica.id, s.replicaCount, s.store, s.publishSessions
		o.PublishPolicy = func(ctx context.Context, accountID string) { s.accessChanged(ctx, accountID) }
	}
	s.sessions = tunnelserver.New(o)
	s.tunnels = tunnel.NewServer(tunnel.ServerConfig{
		Handler: s.sessions, OnResponsiveness: s.sessions.OnResponsiveness, WindowBudget: s.windows,
		OnWelcome: func(c *tls.Conn) { s.tlsListener.unauthenticated.remove(c) }, Logger: s.log,
	})
	s.tlsListener.tunnel = func(ctx context.Context, c *tls.Conn) error { return s.tunnels.ServeConn(ctx, c) }
}

// publishSessions makes the other replicas compare tunnel sessions of these accounts with the store.
func (s *service) publishSessions(
	ctx context.Context, accountIDs, sessionIDs []string, code tunnel.Code, msg string,
) {
	err := s.replica.peers.Publish(ctx, peers.Change{Kind: peers.ChangeSessions, AccountIDs: accountIDs,
		IDs: sessionIDs, Code: code, Message: msg})
	if err != nil {
		s.log.Warn("other replicas were not told of sessions; they compare them with the store", "sessions", sessionIDs,
			"err", err)
	}
}

// publishPeople makes the other replicas cut what they serve for sessions of people that are over.
func (s *service) publishPeople(ctx context.Context, accountID string, sessionIDs []string) error {
	return s.replica.peers.Publish(ctx, peers.Change{Kind: peers.ChangePeople, AccountID: accountID, IDs: sessionIDs})
}
