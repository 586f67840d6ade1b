// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import "context"

// SessionLegs records the legs of a live agent's session: the servers that it has connections with.
// The first leg is that of the server that started the session.
type SessionLegs interface {
	// JoinSession adds this server to the servers of a live agent's session, if joinHash is that of
	// its row. CodeNotFound otherwise, and always without replicas. Idempotent.
	JoinSession(ctx context.Context, id string, joinHash []byte) (*TunnelSession, error)
	// LeaveSession records that the session has no connection with this server any more. The session
	// ends with its last server, as by Binder.EndSession; end is recorded then. Without replicas it
	// is EndSession.
	LeaveSession(ctx context.Context, accountID, id string, end SessionEnd) error
	// SessionHoldings returns the endpoints and tunnels of a live session, else CodeNotFound.
	SessionHoldings(ctx context.Context, accountID, id string) (*SessionHoldings, error)
	// HoldingsVersions returns the versions of the holdings of these sessions, of any account;
	// sessions that are over have none.
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
	History    string // History is that of SessionHoldings.
}

// SessionHoldings are the endpoints, with their traffic policies, and the tunnels of a session,
// read at one moment, each list in the order of the ids.
type SessionHoldings struct {
	Endpoints []Endpoint
	Tunnels   []LabelledTunnel
	// History identifies the database's history; "" = unknown. After a failover it differs, and the
	// latest writes may be lost.
	History string
}

// HoldingsVersion changes with the endpoints and tunnels of a session. Reading it is cheap.
type HoldingsVersion struct {
	Endpoints   int
	EndpointSeq int64 // the highest resource version; 0 without endpoints
	Tunnels     int
	TunnelID    string // the highest id; "" without tunnels
}
