// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/storecache"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Store is the part of the store that the server reads and writes.
type Store interface {
	account.TunnelAuthenticator
	account.Binder
	account.SessionStarter
	account.TunnelStarter
	account.Endpoints
	TunnelSession(ctx context.Context, accountID, id string) (*account.TunnelSession, error)
	Operator(ctx context.Context, accountID, id string) (*account.Operator, error)
	// MarkOperatorSeen records that the operator has a forwarder connected. It does not wait for a
	// write.
	MarkOperatorSeen(id string)
	// GrantedHosts returns which hosts of the public binding the account is granted now.
	GrantedHosts(ctx context.Context, accountID string, hosts []string) (map[string]bool, error)
}

// Edge serves what forwarders open, and learns of what agents bind.
type Edge interface {
	// ServeStream serves a forwarder's stream. It returns when the stream has ended.
	ServeStream(context.Context, Incoming)
	// EndpointBound is called after every bind that succeeded. It must not block.
	EndpointBound(*account.Endpoint)
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
	// PublishSessions makes the other servers compare these sessions with the store, as ApplySessions
	// does here, and returns when they have or ctx is done. accountIDs are the sessions' accounts.
	PublishSessions(ctx context.Context, accountIDs, sessionIDs []string, code tunnel.Code, msg string)
	// PublishPolicy makes this server and the others read the account's endpoints from the store, as
	// a traffic policy was replaced, and returns when they do or ctx is done.
	PublishPolicy(ctx context.Context, accountID string)
}

// Incoming is a forwarder's stream that passed the checks. The receiver must accept or refuse
// Stream, and end it.
type Incoming struct {
	Stream     *tunnel.Stream
	Endpoint   *account.Endpoint
	OperatorID string          // the forwarder's operator
	Cluster    string          // the operator's cluster name when the forwarder connected
	Draining   <-chan struct{} // closed when the forwarder is about to stop
	// ReportLine sends the forwarder a line about a request of this stream; it never blocks.
	ReportLine func(tunnel.RequestLine)
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
	Legs      account.SessionLegs // part of the store
}

// Server implements tunnel.Handler. It is safe for concurrent use.
type Server struct {
	opt     Options
	log     *slog.Logger
	started time.Time

	mu          sync.Mutex
	sessions    map[string]*session         // by session id, from the accepted hello on
	members     map[string]*Member          // by endpoint id
	pools       map[poolKey][]*Member       // members by URL
	public      map[publicAddress][]*Member // members of the public binding, in the order of their binds
	tunnels     map[string][]*Member        // labelled tunnels, by account
	chooseCount uint64                      // how often a member was chosen
	changed     chan struct{}               // closed and replaced by signalChange
	bindLimits  map[string]*bindLimits
	unrecorded  []*session // ended sessions whose end the store did not record, as it did not answer
	draining    bool
	unpublished map[string]string // accounts of sessions whose binds are not published yet, by session id
	publishing  bool              // publishPending runs
	// publications that wait for another of their kind, and the latest that began
	nextPublications, publications map[publicationKind]*publication

	joins     sync.RWMutex // held for reading by Join, for writing by retries of recordSessionEnd
	comparing sync.Mutex   // held by comparisons with the store, so that an older one is not applied last

	history     string         // the database's history at the last comparison; guarded by mu
	correcting  sync.Mutex     // held by correctLegs
	differences legDifferences // result of the last comparison; guarded by correcting

	// endpoints that forwarders name and no session holds
	endpoints *storecache.Cache[endpointKey, *account.Endpoint]

	unanswered  atomic.Int64  // binds that the other servers have not answered within publishWait
	publishWait time.Duration // bindPublishTimeout, longer in tests

	closing sync.WaitGroup // sessions being closed
}

var _ tunnel.Handler = (*Server)(nil)

// session is a tunnel session with its account and credential.
type session struct {
	id, accountID, operatorID string
	cluster                   string // the operator's cluster name
	credentialID              string
	clusterUID                string // the cluster whose exporter's credential it is; "" = no exporter's
	hello                     tunnel.Hello
	ip                        string
	accepted                  time.Time
	joined                    bool // it began on another server

	// holdings excludes readings of what the session holds, with their application to the members,
	// from its own binds and unbinds here: held for writing by the former, for reading by the
	// latter.
	holdings sync.RWMutex

	// guarded by Server.mu
	token    *account.TunnelCredential // what the watchdog read last; replaced, never changed
	tun      *tunnel.Session           // nil until Up
	stored   bool                      // the store has, or had, a row of it
	stopping bool                      // told to stop; its end will follow
	recorded bool                      // the store has its end already
	end      account.SessionEnd        // the recorded reason, if the service ended it
	endCode  tunnel.Code               // what its client is told, if the service ended it
	endMsg   string
}

// New returns a Server; Run ends the sessions whose credentials are revoked.
func New(o Options) *Server {
	return &Server{
		opt:        o,
		log:        o.Logger,
		started:    time.Now(),
		changed:    make(chan struct{}),
		sessions:   make(map[string]*session),
		members:    make(map[string]*Member),
		pools:      make(map[poolKey][]*Member),
		public:     make(map[publicAddress][]*Member),
		endpoints:  newEndpointCache(o.Store),
		tunnels:    make(map[string][]*Member),
		bindLimits: make(map[string]*bindLimits),

		unpublished:      make(map[string]string),
		nextPublications: make(map[publicationKind]*publication),
		publications:     make(map[publicationKind]*publication),
		publishWait:      bindPublishTimeout,
	}
}

// replicated reports whether the server is one of several with one store.
func (s *Server) replicated() bool { return s.opt.ReplicaID != "" }

// Drain refuses further hellos and new streams of forwarders, and tells the sessions of the role
// that the server stops within d. Live sessions and streams continue. Forwarders are told first:
// while their last requests are answered, streams to agents are still needed.
func (s *Server) Drain(role tunnel.Role, d time.Duration) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for _, t := range s.liveSessions() {
		if t.hello.Role != role {
			continue
		}
		if err := t.tun.Drain(d); err != nil {
			s.log.Debug("drain message not sent", "session", t.id, "err", err)
		}
	}
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Stats are current numbers.
type Stats struct {
	Agents, Forwarders, Endpoints, Tunnels, Streams int
}

// Stats counts live sessions, bound endpoints, labelled tunnels and live streams.
func (s *Server) Stats() Stats {
	var st Stats
	for _, t := range s.liveSessions() {
		if t.hello.Role == tunnel.RoleAgent {
			st.Agents++
		} else {
			st.Forwarders++
		}
		st.Streams += t.tun.Streams()
	}
	s.mu.Lock()
	st.Endpoints = len(s.members)
	for _, tunnels := range s.tunnels {
		st.Tunnels += len(tunnels)
	}
	s.mu.Unlock()
	return st
}

// liveSessions returns the sessions that are up.
func (s *Server) liveSessions() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*session, 0, len(s.sessions))
	for _, t := range s.sessions {
		if t.tun != nil {
			out = append(out, t)
		}
	}
	return out
}

func (s *Server) tokenOf(t *session) *account.TunnelCredential {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.token
}

func (s *Server) session(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}
