// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Store is the part of the store that the server reads and writes.
type Store interface {
	rightsStore
	bindStore
	sessionStore
	account.SessionStarter
	account.Endpoints
}

// Edge serves what forwarders open, and learns of what agents bind.
type Edge interface {
	// ServeStream serves a forwarder's stream. It returns when the stream has ended.
	ServeStream(context.Context, Incoming)
	// EndpointBound is called after every bind that succeeded. Of a public endpoint it returns what
	// tunnel.Bound says of how clients reach it. It must not block.
	EndpointBound(*account.Endpoint) (listenerURL, unreachable string)
}

// Meter counts. Implementations are safe for concurrent use and do not block. An outcome is
// "accepted", or the code of the refusal.
type Meter interface {
	CountHello(role tunnel.Role, outcome string)
	CountBind(outcome string)
	// CountIncomingStream counts streams of forwarders.
	CountIncomingStream(outcome string)
}

// Replicas are the servers with one store.
type Replicas interface {
	// Count returns how many servers accept sessions, for the Welcome.
	Count() int
	// PublishSessions makes the other servers do what ApplySessions does here, and returns when they
	// have or ctx is done. The change has the accounts of the sessions.
	PublishSessions(ctx context.Context, c peers.Change)
	// PublishPolicy makes this server and the others read the account's endpoints from the store, as
	// a traffic policy was replaced, and returns when they do or ctx is done.
	PublishPolicy(ctx context.Context, accountID string)
}

// Incoming is a forwarder's stream that passed the checks. The receiver must accept or refuse
// Stream, and end it.
type Incoming struct {
	Stream   *tunnel.Stream
	Endpoint *account.Endpoint
	Origin
	Draining  <-chan struct{} // Draining is closed when the forwarder is about to stop.
	Forwarder Forwarder       // receiver of lines about the requests of this stream
}

// Origin is whence a stream came. What a forwarder of an operator states about its client is taken over;
// a forwarder without one is the client itself.
type Origin struct {
	OperatorID   string // the forwarder's operator; "" = it has none
	Cluster      string // the operator's cluster name when the forwarder connected
	CredentialID string // credential of a forwarder without an operator
	ClientAddr   string // host:port of the client; "" = unknown
	Pod          *tunnel.PodIdentity

	// TrustsForwarding reports that the rules of the forwarder's cluster believe the client's
	// forwarding headers.
	TrustsForwarding bool
}

// Options configure a Server; those without a default are required.
type Options struct {
	Store Store
	// CheckPolicy compiles the traffic policies of binds; nil refuses them.
	CheckPolicy account.PolicyChecker
	Edge        Edge
	Meter       Meter

	StoreID  string
	ServerID string
	Version  string // this server's version, for the Welcome
	Logger   *slog.Logger

	// ReplicaID is the id of this server among several with one store; "" = it is alone, and the
	// fields below are not used.
	ReplicaID string
	Replicas  Replicas
	Legs      account.SessionLegs // the store's part for sessions of several servers
}

// Server implements tunnel.Handler and account.SessionEnder by its parts, each of which has its own
// lock. It is safe for concurrent use.
type Server struct {
	*registry     // the sessions: Stats
	*members      // what sessions have bound: Online, OnlinePublic, IsOnline, Holders, OpenMember, ReportLine
	*chooser      // the choice among them, with waiting: Choose, ChooseNow
	*binder       // Bind, Unbind
	*rights       // the rights of sessions to continue: Renew, ApplyAccess
	*ender        // Down, StopSession, RestartSession
	*holdingsSync // changes by other servers: ApplySessions
	*streams      // Stream

	opt           Options
	log           *slog.Logger
	authenticator authenticator
	tasks         *sync.WaitGroup // sessions that are being closed, and publications
}

var _ tunnel.Handler = (*Server)(nil)

// OnRequestLine implements tunnel.Handler.
func (*Server) OnRequestLine(*tunnel.Session, tunnel.RequestLine) {}

// New returns a Server; Run ends the sessions whose credentials are revoked.
func New(o Options) *Server {
	replicated := o.ReplicaID != ""
	if !replicated {
		o.Replicas, o.Legs = nil, nil
	}
	r, tasks := newRegistry(replicated), new(sync.WaitGroup)
	pub := newPublisher(o.Replicas, tasks)
	end := &ender{registry: r, publisher: pub, store: o.Store, legs: o.Legs, tasks: tasks, log: o.Logger}
	rights := &rights{registry: r, ender: end, store: o.Store, checkPolicy: o.CheckPolicy, log: o.Logger}
	holdings := &holdingsSync{registry: r, ender: end, legs: o.Legs, log: o.Logger}
	return &Server{
		registry: r, members: r.members, rights: rights, ender: end, holdingsSync: holdings,
		chooser: &chooser{members: r.members, store: o.Store, started: time.Now(), replicated: replicated},
		binder: &binder{registry: r, rights: rights, holdings: holdings, ender: end, publisher: pub,
			limits: bindLimiter{byID: make(map[string]*bindLimits)}, store: o.Store, checkPolicy: o.CheckPolicy,
			edge: o.Edge, meter: o.Meter, log: o.Logger},
		streams: &streams{registry: r, members: r.members, store: o.Store, cache: newEndpointCache(o.Store),
			edge: o.Edge, meter: o.Meter, log: o.Logger},
		opt: o, log: o.Logger, authenticator: authenticator{store: o.Store, legs: o.Legs}, tasks: tasks,
	}
}

const (
	// checkInterval ensures that a deleted or changed credential or a deleted operator ends its
	// sessions and streams within a second.
	checkInterval = 500 * time.Millisecond
	// compareRounds is how many checkIntervals lie between complete comparisons with the store.
	compareRounds = 4
	// operatorSeenInterval is how often a connected forwarder records that its operator is in use,
	// while no manager does.
	operatorSeenInterval = time.Hour
	// startTimeout is how long a session may take from its accepted hello to up.
	startTimeout = time.Minute
	// evictGrace is how long a session without a credential may read the reason before it is
	// closed.
	evictGrace = 250 * time.Millisecond
)

// Run compares the sessions with the store, ends those of revoked credentials and deleted
// operators, and retries failed writes to the store, until ctx is done. While the store does not
// answer, sessions continue.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	failing := false
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.limits.forget(time.Now())
		s.forgetUnstarted(time.Now())
		s.retrySessionEnds(ctx)
		compare := s.Compare
		if round%compareRounds != 0 {
			compare = func(ctx context.Context) error { return s.ApplyAccess(ctx, "") }
		}
		err := compare(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Error("revoked credentials cannot be noticed", "err", err)
		}
		failing = err != nil
	}
}

// Compare compares all sessions with the store: authtokens, operators and granted domains, and with
// several servers what the sessions hold.
func (s *Server) Compare(ctx context.Context) error {
	return errors.Join(s.ApplyAccess(ctx, ""), s.compareHoldings(ctx))
}

// Drain refuses further hellos and new streams of forwarders, and announces to the sessions of the
// role that the server stops within d. Live sessions and streams continue. Forwarders are told
// first: while their last requests are answered, streams to agents are still needed.
func (s *Server) Drain(role tunnel.Role, d time.Duration) {
	s.setDraining()
	for _, t := range s.liveSessions() {
		if t.hello.Role != role {
			continue
		}
		if err := t.tun.Drain(d); err != nil {
			s.log.Debug("drain message not sent", "session", t.id, "err", err)
		}
	}
}

// Wait returns when every session that the server closes is closed.
func (s *Server) Wait() { s.tasks.Wait() }
