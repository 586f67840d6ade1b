// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import "context"

// SessionLegs records which of several servers a live agent's session has connections with: its
// legs. A session starts with that of the server that started it.
type SessionLegs interface {
	// JoinSession adds this server to the servers of a live agent's session, if joinHash is that of
	// its row. CodeNotFound otherwise, and always without replicas. Idempotent.
	JoinSession(ctx context.Context, id string, joinHash []byte) (*TunnelSession, error)
	// LeaveSession records that the session has no connection with this server any more. The session
	// ends with its last server, as by Binder.EndSession; end is recorded then. Without replicas it
	// is EndSession.
	LeaveSession(ctx context.Context, accountID, id string, end SessionEnd) error
	// SessionHoldings returns what a live session has bound. CodeNotFound when it is over.
	SessionHoldings(ctx context.Context, accountID, id string) (*SessionHoldings, error)
	// HoldingsVersions returns the versions of the holdings of these sessions, of any account;
	// sessions that are over are missing.
	HoldingsVersions(ctx context.Context, ids []string) (map[string]HoldingsVersion, error)
	// OwnLegs returns the sessions that have a leg with this server.
	OwnLegs(ctx context.Context) (OwnLegs, error)
	// CorrectLegs adds a leg with this server to those of the sessions add that are live, and removes
	// the legs of the sessions remove with this server.
	CorrectLegs(ctx context.Context, add, remove []string) error
}

// OwnLegs are the sessions that have a leg with a server, read at one moment.
type OwnLegs struct {
	SessionIDs []string
	History    string // as in SessionHoldings
}

// SessionHoldings are what a session has bound, read at one moment, each list in the order of the
// ids. The endpoints have their traffic policies.
type SessionHoldings struct {
	Endpoints []Endpoint
	Tunnels   []LabelledTunnel
	// History names the history of the database that was read; "" = it is not known. Another one,
	// after a failover, may lack what was written last.
	History string
}

// HoldingsVersion changes with what a session has bound. It is cheap to read for many sessions.
type HoldingsVersion struct {
	Endpoints   int
	EndpointSeq int64 // the highest resource version; 0 without endpoints
	Tunnels     int
	TunnelID    string // the highest id; "" without tunnels
}
