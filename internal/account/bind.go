// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"slices"
	"time"
)

// BindRequest asks for an endpoint on behalf of a live tunnel session.
type BindRequest struct {
	// Endpoint is one of NewEndpoint with AccountID, EndpointSettings, Owner and TrafficPolicy; the
	// rest is the store's. With PoolingEnabled the row is that of Name, or of the session's instance
	// id. Endpoints of one owner share their URL without pooling.
	Endpoint

	CredentialID string
	SessionID    string
	// Holds reports whether the session was told that it holds the endpoint: a second bind of it
	// needs the resume secret. nil = it holds none.
	Holds        func(endpointID string) bool
	ResumeSecret string // from the previous bind of this endpoint by this process; empty at its start

	PolicyFacts PolicyFacts // result of a PolicyChecker for TrafficPolicy
	// ReplacePoolPolicy gives all members of the pool this policy; else another is CodeURLTaken.
	ReplacePoolPolicy bool
}

// Validate checks a bind and lists every broken rule as CodeInvalid.
func (b *BindRequest) Validate() error {
	var r rules
	kind, parse, binding := KindAgentEndpoint, ParseAnyURL, b.Bindings[0]
	if binding == BindingClusterset || slices.Contains(Bindings(), binding) {
		parse = func(raw string) (EndpointURL, error) { return ParseBindingURL(binding, raw) }
	} else {
		r.add("binding", binding, ruleBinding)
	}
	if u, err := parse(b.URL); err != nil || u != b.ParsedURL() {
		r.add("url", b.URL, "must be a parsed endpoint URL")
	}
	if binding == BindingClusterset {
		kind = KindServiceExport
		r.exportedPort(b)
	}
	b.EndpointSettings.validate(&r)
	r.text("traffic_policy", b.TrafficPolicy, MaxTrafficPolicy)
	if (b.TrafficPolicy == "") != (b.PolicyFacts.Digest == "") {
		r.add("traffic_policy", "", "must be checked before it is kept")
	}
	r.checkOwner(b.Owner, kind)
	return r.err()
}

// BindResult is the endpoint that the session now holds.
type BindResult struct {
	Endpoint          Endpoint
	ResumeSecret      string // new at each bind; only its hash is stored
	ReplacedSessionID string // the session that held the endpoint until now and has to be closed, or ""
	PolicyReplaced    bool   // an endpoint that was there had another traffic policy
	// OwnerEndpointID is the oldest endpoint of the bind's owner at the URL, which may be this one;
	// "" without an owner.
	OwnerEndpointID string
}

// Binder turns binds into rows (docs/reference/api/endpoints.md).
type Binder interface {
	// Bind inserts a row, adopts an offline one, or takes over the one whose resume secret it has.
	// CodeURLTaken otherwise, naming the holder; also unless all endpoints of a URL pool, or none
	// does. Each member of a pool has a row that no other member adopts. Endpoints of one owner
	// share their URL without pooling, each with its row. A bind adopts a row only if both have the
	// same owner, or neither has one. CodeInUse when another cluster has the cluster id in a URL of
	// BindingClusterset.
	Bind(ctx context.Context, r BindRequest) (*BindResult, error)
	// Unbind deletes an endpoint that the session holds and its agent has ended. The id stays
	// reserved. Not held: no-op.
	Unbind(ctx context.Context, accountID, endpointID, sessionID string) error
	// EndSession marks everything the session holds offline and ends the session's row; rows are
	// kept for the grace period. end is for the audit record.
	EndSession(ctx context.Context, accountID, sessionID string, end SessionEnd) error
}

// SessionEnd is why a session has ended, for its audit record. An empty Reason means that the agent
// or the network ended the connection.
type SessionEnd struct {
	Reason string
	// PrincipalID ended it; "" = the principal that changed CausedByID last, or the service
	// itself.
	PrincipalID string
	CausedByID  string // the id of what was deleted or changed; "" = nothing was
}

// TunnelSession is an agent's live tunnel.
type TunnelSession struct {
	ID           string    `json:"id"`
	URI          string    `json:"uri"`
	AgentVersion string    `json:"agent_version"`
	Credential   Ref       `json:"credential"`
	IP           string    `json:"ip"`
	Metadata     string    `json:"metadata"`
	OS           string    `json:"os"`
	Region       string    `json:"region"`
	StartedAt    time.Time `json:"started_at"`
	Transport    string    `json:"transport"`

	AccountID  string `json:"-"`
	InstanceID string `json:"-"`
	ServerID   string `json:"-"`
	JoinHash   []byte `json:"-"` // SHA-256 of the secret that further connections present; nil without replicas
}

// TunnelSessions reads the live sessions of an account.
type TunnelSessions interface {
	TunnelSession(ctx context.Context, accountID, id string) (*TunnelSession, error)
	ListTunnelSessions(ctx context.Context, accountID string, p Page) (page []TunnelSession, more bool, err error)
}

// SessionEnder ends live sessions of an account's agents. The agent is told at once, and its
// connections end within a second. CodeNotFound for a session that is not live.
type SessionEnder interface {
	// StopSession ends a session for good: its agent exits and does not come back. Its endpoints
	// are offline, as those of a lost agent.
	StopSession(ctx context.Context, by Caller, id string) error
	// RestartSession ends a session whose agent then connects again, with the endpoints it had.
	RestartSession(ctx context.Context, by Caller, id string) error
}

// SessionStarter records a session before its first bind. The session ends with Binder.EndSession.
type SessionStarter interface {
	StartSession(ctx context.Context, s TunnelSession) error
}

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
