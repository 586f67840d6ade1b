// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/tasks"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Replica is a live row of the registry.
type Replica struct {
	ID           string
	RelayAddress string // host:port where its peers reach it
	Version      string // the program's version
	Draining     bool   // Draining reports that it is about to stop.
}

// Options configure Peers. ID, Key, Replicas and Local are required.
type Options struct {
	ID       string    // this replica's id; a DNS label
	Key      *seal.Key // the peers' authority is derived from it
	Registry Registry
	Local    Local
	// Lease is how long a replica serves people without a comparison with the store. Publish waits
	// for a second more, at most.
	Lease        time.Duration
	WindowBudget *tunnel.WindowBudget // shared by the process; default: one of its own
	Logger       *slog.Logger         // default: none
	Dialer       Dialer               // dials relay addresses; default: a net.Dialer
}

// Dialer opens connections, as *net.Dialer does.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Registry is the table of the replicas.
type Registry interface {
	// Replicas reads the live rows, this replica's included. It is called every second, once for each
	// Publish, and when a replica calls that is not known yet.
	Replicas(ctx context.Context) ([]Replica, error)
}

// Local answers peers for this replica. Its methods are called concurrently.
type Local interface {
	// Holders returns what sessions with this replica have bound.
	Holders(q Query) []Holder
	// OpenMember opens a stream to an agent that has a session with this replica, by the id of its
	// endpoint or labelled tunnel. CodeEndpointOffline when there is none; an error that is
	// tunnel.ErrUnresponsive when it does not respond. Without an error, release is called once when
	// the stream has ended: until then it is one of the member's connections.
	OpenMember(ctx context.Context, accountID, id string, h tunnel.OpenHeader) (
		st *tunnel.Stream, release func(), err error)
	// ReportLine shows a request on the screen of the agent that holds line.EndpointID. It must not
	// block.
	ReportLine(accountID string, line tunnel.RequestLine)
	// Apply returns when the change is true on this replica. It may be called more than once for a
	// change.
	Apply(ctx context.Context, c Change) error
	// AnswerTraffic answers a question of AskTraffic. Its error is about the question.
	AnswerTraffic(question []byte) ([]byte, error)
	// StoreAge returns how long ago this replica asked the store for what it last answered.
	StoreAge() time.Duration
}

// Query asks for members: of a pool, or of labels (AccountID, Labels).
type Query struct {
	Pool
	Labels map[string]string `json:"labels,omitempty"`
}

// Pool is a URL of an account, whose members serve its connections; or, with Binding, Host and Port
// alone, a public address of whichever account has it.
type Pool struct {
	AccountID string `json:"account_id,omitempty"`
	Binding   string `json:"binding,omitempty"`
	Scheme    string `json:"scheme,omitempty"`
	Host      string `json:"host,omitempty"`
	Port      int    `json:"port,omitempty"`
}

// PoolOf returns the pool that the endpoint is a member of.
func PoolOf(ep *account.Endpoint) Pool {
	return Pool{ep.AccountID, ep.Bindings[0], ep.Scheme, ep.Host, ep.Port}
}

// PublicAddress returns the pool of a public address.
func PublicAddress(host string, port int) Pool {
	return Pool{Binding: account.BindingPublic, Host: host, Port: port}
}

// Holder is an endpoint or labelled tunnel that a session has bound on the replica that was asked.
type Holder struct {
	Endpoint     account.Endpoint `json:"endpoint"`               // with its traffic policy
	Connections  int              `json:"connections"`            // connections that it serves now
	Unresponsive bool             `json:"unresponsive,omitempty"` // its agent does not answer pings
	Asked        time.Time        `json:"asked"`                  // when the bind was asked of the store
}

// pollInterval is the time between two reads of the registry.
const pollInterval = time.Second

// errClosed is the error of calls after Run has returned.
var errClosed = errors.New("the links to the other replicas are closed")

// Peers are the links of this replica with the others. Its methods are safe for concurrent use; Run
// and Serve are called once each, and Run ends last.
type Peers struct {
	opt      Options
	log      *slog.Logger
	identity *identity
	registry *registry
	listener *listener
	relayed  relayedStreams
	ctx      context.Context // ends with Run
	cancel   context.CancelFunc
	tasks    tasks.Group

	relayedOut, relayedIn, overdue atomic.Int64 // what Totals returns
	lastRelayID                    atomic.Uint64

	mu        sync.Mutex // guards what follows and the members
	peers     map[string]*peer
	lastLeft  time.Time // when a replica was last removed from peers
	questions map[queryKey]*question
	sequence  uint64 // the last question's number
	choices   uint64 // members chosen so far
}

// New returns Peers without links; Run makes them.
func New(opt Options) (*Peers, error) {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	opt.WindowBudget = cmp.Or(opt.WindowBudget, tunnel.NewWindowBudget(0))
	if opt.Dialer == nil {
		opt.Dialer = &net.Dialer{}
	}
	authority, err := newAuthority(opt.Key)
	if err != nil {
		return nil, err
	}
	p := &Peers{opt: opt, log: opt.Logger, identity: &identity{authority: authority, id: opt.ID},
		peers: make(map[string]*peer), questions: make(map[queryKey]*question)}
	if _, err := p.identity.certificate(); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.registry = &registry{peers: p, changed: make(chan struct{})}
	relay := relayHandler{p}
	p.listener = &listener{
		id: opt.ID, identity: p.identity, registry: p.registry, log: p.log, api: api{p}.handler(),
		writeTimeout: opt.Lease + publishGrace + handshakeTimeout, inbound: make(map[string]map[*inboundConn]struct{}),
		tunnels: tunnel.NewServer(tunnel.ServerConfig{Handler: relay, WindowBudget: opt.WindowBudget,
			Logger: opt.Logger}),
	}
	return p, nil
}

// Serve accepts connections of peers until ctx is done. Then it closes the listener and the
// connections, and waits for what they serve.
func (p *Peers) Serve(ctx context.Context, l net.Listener) error { return p.listener.serve(ctx, l) }

// WaitRelayed waits until no stream that a peer has opened to an agent here is live, or returns the
// error of ctx. Peers keep streams of http for some seconds after the last request.
func (p *Peers) WaitRelayed(ctx context.Context) error { return p.relayed.wait(ctx) }

// countRelayed counts a stream that a peer has opened to an agent here.
func (p *Peers) countRelayed(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pr := p.peers[caller]; pr != nil {
		pr.relayedIn.Add(1)
		p.relayedIn.Add(1)
	}
}

// Run reads the registry every second and keeps a link to each peer in it until ctx is done. Then
// it closes the links; what is under way ends with an error.
func (p *Peers) Run(ctx context.Context) {
	defer p.tasks.Close()
	defer p.cancel()
	failing := false
	for {
		err := p.registry.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		if failing != (err != nil) {
			if failing = err != nil; failing {
				p.log.Warn("the list of replicas could not be read; the last one stays in use", "err", err)
			} else {
				p.log.Info("the list of replicas can be read again")
			}
		}
		p.removeUnused(time.Now())
		if !timer.Sleep(ctx, pollInterval) {
			return
		}
	}
}

// setReplicas begins links to new replicas and ends those with replicas that are gone.
func (p *Peers) setReplicas(rows map[string]Replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, pr := range p.peers {
		if _, live := rows[id]; !live {
			delete(p.peers, id)
			pr.cancel()
			p.lastLeft = time.Now()
		}
	}
	p.listener.endOthers(rows)
	for id, row := range rows {
		if pr := p.peers[id]; pr != nil {
			pr.row = row
		} else if id != p.opt.ID {
			pr = newPeer(p, row)
			if p.tasks.Start(pr.run) {
				p.peers[id] = pr
				clear(p.questions) // those that it was not asked
			}
		}
	}
}

// livePeers returns the peers by id.
func (p *Peers) livePeers() map[string]*peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.peers)
}

// Status describes a link with a peer.
type Status struct {
	ID, Address, Version string
	Draining             bool // the peer is about to stop
	Connected            bool
	Since                time.Time     // when the link was made, or lost
	Error                string        // why there is none, or why the last ping failed; "" = none
	RoundTrip            time.Duration // at rest, by the last ping; 0 = unknown
	Heard                time.Time     // when the last ping was answered; zero = never
	StoreAge             time.Duration // age of the store's last answer to the peer, then; -1 = unknown

	RelayedOut, RelayedIn int64 // streams so far: that this replica opened over the peer, and the reverse
	Members               int   // members that are known through the link
	PendingChanges        int64 // changes that the peer has not answered
	OverdueChanges        int64 // changes that it had not answered within its lease, so far
}

// Totals are counts over all peers, those that have left included.
type Totals struct {
	RelayedOut, RelayedIn int64 // streams
	OverdueChanges        int64
}

// Totals returns the counts since New.
func (p *Peers) Totals() Totals {
	return Totals{p.relayedOut.Load(), p.relayedIn.Load(), p.overdue.Load()}
}

// HasDialed reports whether the registry was read, and each peer in it was dialed and answered a ping,
// or does not answer: from then on questions find connections.
func (p *Peers) HasDialed() bool {
	known := p.registry.has(p.opt.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pr := range p.peers {
		tried := pr.wasTried && (pr.link == nil || pr.silent || !pr.heard.IsZero())
		known = known && (tried || time.Since(pr.since) > handshakeTimeout)
	}
	return known
}

// Status returns the links with all peers in the registry, in the order of their ids.
func (p *Peers) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Status, 0, len(p.peers))
	for id, pr := range p.peers {
		s := Status{ID: id, Address: pr.row.RelayAddress, Version: pr.row.Version, Draining: pr.row.Draining,
			Connected: pr.link != nil, Since: pr.since, Error: pr.lastErr, RoundTrip: pr.roundTrip,
			Heard: pr.heard, StoreAge: pr.storeAge,
			RelayedOut: pr.relayedOut.Load(), RelayedIn: pr.relayedIn.Load(),
			PendingChanges: pr.pending.Load(), OverdueChanges: pr.overdue.Load()}
		if pr.link != nil {
			s.Members = len(pr.link.members)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
