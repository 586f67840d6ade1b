// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// OperatorReader finds the operator that a forwarder says it belongs to.
type OperatorReader interface {
	Operator(ctx context.Context, accountID, id string) (*account.Operator, error)
	// MarkOperatorSeen notes that the operator has a forwarder connected, without waiting for a write.
	MarkOperatorSeen(id string)
}

// Incoming is a forwarder's stream that passed the checks. The receiver accepts or refuses Stream,
// and ends it.
type Incoming struct {
	Stream     *tunnel.Stream
	Endpoint   *account.Endpoint
	OperatorID string          // the forwarder's operator, which its authtoken may connect for
	Cluster    string          // the operator's, as it was registered when the forwarder connected
	Draining   <-chan struct{} // closed when the forwarder is about to stop
	// ReportLine sends the forwarder a line about a request of this stream; it never blocks.
	ReportLine func(tunnel.RequestLine)
}

// Options are what a Server needs; those without a default are required.
type Options struct {
	Auth      account.Authenticator
	Binder    account.Binder
	Sessions  account.SessionStarter
	Tunnels   account.TunnelStarter
	Endpoints account.Endpoints
	Operators OperatorReader
	Hosts     HostReader // nil = grants of domains are never revoked
	// CheckPolicy compiles the traffic policies of binds; nil refuses them.
	CheckPolicy account.PolicyChecker
	// OnBind is called after every bind that succeeded. It must not block; nil = not called.
	OnBind   func(*account.Endpoint)
	StoreID  string
	ServerID string
	Version  string                             // of this server, for the Welcome
	Serve    func(context.Context, Incoming)    // takes over a forwarder's stream; returns when it has ended
	OnOpen   func(outcome string)               // counts forwarder-opened streams: "accepted" or why not
	OnHello  func(role tunnel.Role, out string) // counts hellos: "accepted" or the code of the refusal
	Logger   *slog.Logger
}

// Server implements tunnel.Handler. It is safe for concurrent use.
type Server struct {
	opt     Options
	log     *slog.Logger
	started time.Time

	mu       sync.Mutex
	sessions map[string]*session  // by session id, from the accepted hello on
	holdings map[string]*Member   // by endpoint id
	places   map[place][]*Member  // the same, by URL: one, or the members of a pool
	tunnels  map[string][]*Member // labelled tunnels, by account
	turns    uint64               // how often Choose has chosen
	bound    chan struct{}        // closed and replaced by each bind
	limits   map[string]*bindLimits
	lost     []*session // ended, and still online in the store, which did not answer
	draining bool

	closing sync.WaitGroup // sessions being closed
}

var _ tunnel.Handler = (*Server)(nil)

// session is what the service knows of a tunnel session beyond the protocol.
type session struct {
	id, accountID, operatorID string
	cluster                   string // the operator's
	credentialID              string
	hello                     tunnel.Hello
	ip                        string
	accepted                  time.Time

	// guarded by Server.mu
	token    *account.Authtoken // as the watchdog last saw it; replaced, never changed
	tun      *tunnel.Session    // nil until Up
	stopping bool               // told to stop; its end is on the way
	end      account.SessionEnd // why, if it was not its own doing
}

// New makes a Server; Run keeps it honest.
func New(o Options) *Server {
	return &Server{
		opt:      o,
		log:      o.Logger,
		started:  time.Now(),
		bound:    make(chan struct{}),
		sessions: make(map[string]*session),
		holdings: make(map[string]*Member),
		places:   make(map[place][]*Member),
		tunnels:  make(map[string][]*Member),
		limits:   make(map[string]*bindLimits),
	}
}

// Drain refuses further hellos and new streams of forwarders, and tells the sessions of the role
// that the server stops within d. Live sessions and streams go on. Forwarders are told first: while
// their last requests are answered, streams to agents are still needed.
func (s *Server) Drain(role tunnel.Role, d time.Duration) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for _, t := range s.up() {
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

// Stats are the numbers of the moment.
type Stats struct {
	Agents, Forwarders, Endpoints, Tunnels, Streams int
}

// Stats counts live sessions, held endpoints, labelled tunnels and live streams.
func (s *Server) Stats() Stats {
	var st Stats
	for _, t := range s.up() {
		if t.hello.Role == tunnel.RoleAgent {
			st.Agents++
		} else {
			st.Forwarders++
		}
		st.Streams += t.tun.Streams()
	}
	s.mu.Lock()
	st.Endpoints = len(s.holdings)
	for _, tunnels := range s.tunnels {
		st.Tunnels += len(tunnels)
	}
	s.mu.Unlock()
	return st
}

// up returns the sessions that are up.
func (s *Server) up() []*session {
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

func (s *Server) tokenOf(t *session) *account.Authtoken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.token
}

func (s *Server) session(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}
