// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/goruntime/tasks"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// Client is a client's connection as it enters the edge. A *tunnel.Stream of a forwarder is one.
type Client interface {
	relay.HalfCloser
	// Accept answers the forwarder that relays the client: its bytes will be served.
	Accept() error
	// Refuse answers the forwarder that they will not, and why.
	Refuse(tunnel.RefuseCode) error
	// Reset aborts both directions, so that an abort does not look like an end.
	Reset(tunnel.RefuseCode) error
}

// LineReporter gets lines about requests. It does not block.
type LineReporter interface{ ReportLine(line tunnel.RequestLine) }

// ClientInfo describes a client.
type ClientInfo struct {
	OperatorID string // authenticated operator of the forwarder that relays the client
	Cluster    string // cluster of that operator, as registered
	// CredentialID is the credential of a client that is a forwarder without an operator; "" = another
	// client.
	CredentialID string
	ClientAddr   string     // host:port of the client, as the forwarder states it
	ClientIP     netip.Addr // address in ClientAddr; the zero Addr = unknown
	// TLS reports whether the client speaks TLS with the listener or with a trusted proxy before
	// it.
	TLS        bool
	ServerName string // SNI of the client; "" = none
	// Port is that of the client's URL where it is not the endpoint's; 0 otherwise.
	Port int
	// Forwarded reports whether X-Forwarded-* of the requests are true: the listener has set them.
	Forwarded bool
	// AppendForwarded reports that the client is a proxy whose X-Forwarded-* are kept and appended to.
	AppendForwarded bool
	StatedPod       *tunnel.PodIdentity // calling pod, as the forwarder states it; nil = unknown
	TraceID         string
	// MaxWait bounds the wait for an agent that is reconnecting; 0 = no limit of the client's.
	MaxWait  time.Duration
	Sealed   bool            // Sealed reports that the connection is to be relayed unread to an agent that seals.
	Tried    string          // Tried are ids of endpoints whose agents were tried, with commas between.
	Spare    SpareKey        // Spare is what a sealed connection is itself, or what the client is to use.
	Draining <-chan struct{} // Draining is closed when the forwarder is about to stop; nil = never.
	// DrainsIdle reports that a connection without a request is to end a second after Draining is closed.
	DrainsIdle bool
	Aborter    trafficpolicy.Aborter // Aborter is nil where the client's connection carries other requests too.
	Locator    trafficpolicy.Locator // Locator finds ClientIP; nil = unknown.
	// Forwarder gets a line, as it does not read HTTP, when the edge answers a request itself (the
	// line has a Code), and when the upstream answers again (no Code). The line names no endpoint.
	// nil for other clients.
	Forwarder LineReporter

	// Upstreams are private to the client's connection; nil where the connection serves several
	// clients, or is not known.
	Upstreams *PrivateUpstreams

	verdicts *connVerdicts // verdicts on the connection; nil = each request counts as a connection of its own
}

// Agent is an agent that holds an endpoint now. Each bind is another Agent; values are compared.
type Agent interface {
	// Endpoint returns the endpoint with the attributes that the agent bound it with. In a pool it
	// may be another than the one that was asked for.
	Endpoint() *account.Endpoint
	// Open opens a stream without waiting for the agent's answer. It returns CodeEndpointOffline
	// when the agent is gone, tunnel.ErrUnresponsive when it does not respond.
	Open(ctx context.Context, h tunnel.OpenHeader) (*tunnel.Stream, error)
	// Report shows a request on the agent's screen; it does not block.
	Report(tunnel.RequestLine)
	// Context is done when the agent no longer holds the endpoint.
	Context() context.Context
	// Release ends the use of the agent by the connection or request that it was chosen for. It is
	// called once for each choice.
	Release()
}

// Meter counts. Implementations are safe for concurrent use and do not block.
type Meter interface {
	// Start is called for a request, or for a connection to a tcp endpoint, before anything else is
	// done for it. It may change the request's header.
	Start(*RequestRecord)
	// Finish is called once at its end.
	Finish(*RequestRecord)
	// CountStream counts a stream to an agent by its outcome: "opened" or the reason of the
	// failure.
	CountStream(outcome string)
	// CountBytes counts bytes to and from agents.
	CountBytes(toAgent, fromAgent int)
}

// Checker decides whether an endpoint may be served as it is known.
type Checker interface {
	// Check is called for each connection and request, and with each internal endpoint that it is
	// forwarded to.
	Check(ep *account.Endpoint) error
}

// Agents chooses who serves a connection or request.
type Agents interface {
	// ChooseAgent chooses the agent that serves a connection or request to the endpoint's URL. It
	// returns CodeEndpointOffline when no agent holds the URL, CodeAgentSilent when none that does
	// responds. It may wait for an agent that reconnects or has just become unresponsive, at most for
	// maxWait unless that is 0, but not for one other than those in tried, unless seals is set: those
	// did not seal, or were refused.
	ChooseAgent(
		ctx context.Context, ep *account.Endpoint, maxWait time.Duration, seals bool, tried []Agent,
	) (Agent, error)
	// ChooseTunnel chooses a labelled tunnel of a tunnel group in the same way.
	ChooseTunnel(ctx context.Context, accountID string, labels map[string]string, tried []Agent) (Agent, error)
}

// Endpoints reads endpoints that no agent holds.
type Endpoints interface {
	// Endpoint returns an endpoint with its current policy and backend.
	Endpoint(ctx context.Context, accountID, id string) (*account.Endpoint, error)
	// InternalEndpoint returns an internal endpoint by its URL; CodeNotFound when there is none.
	InternalEndpoint(ctx context.Context, accountID, url string) (*account.Endpoint, error)
	// ListPool lists all endpoints with the URL of a cloud endpoint, in any order and without their
	// policies.
	ListPool(ctx context.Context, ep *account.Endpoint) ([]account.Endpoint, error)
}

// Backends starts connections and requests to backends.
type Backends interface {
	// Attempts returns the leaves that a client may try; CodeNotFound when the account has no
	// backend of the id.
	Attempts(ctx context.Context, accountID, backendID string, info *ClientInfo) (Attempts, error)
}

// StaticDialer connects to static addresses, which tenants configure.
type StaticDialer interface {
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// Options configure an Edge.
type Options struct {
	Agents    Agents
	Endpoints Endpoints // nil = endpoints do not change, and there are no internal ones and no pools
	Backends  Backends  // nil = there are none
	// Checker refuses endpoints that may have changed while the store does not answer; nil = none.
	Checker      Checker
	StaticDialer StaticDialer // nil = static addresses are not offered
	// Logins runs the login actions of traffic policies; nil = they deny.
	Logins      trafficpolicy.LoginHandler
	RootCAs     *x509.CertPool // authorities for static addresses with TLS; nil = those of the system
	Meter       Meter
	Logger      *slog.Logger
	OpenTimeout time.Duration // how long an agent may take to answer an opened stream; default 5 s
}

// Edge serves connections and requests to endpoints. It is safe for concurrent use.
type Edge struct {
	meter Meter
	log   *slog.Logger
	http  *http.Server
	conns *framing.Listener

	router     *router
	upstreams  *upstreams
	background tasks.Group
	spares     sync.Map // spares has a *spare without a client for each SpareKey.

	mu       sync.Mutex
	active   int           // connections and requests being served
	draining bool          // draining is set by Drain.
	drained  chan struct{} // drained is closed while draining and nothing is active.

	stopping      context.Context // stopping ends with BeginStopping.
	beginStopping context.CancelFunc
}

// New makes an Edge; Close ends it.
func New(o Options) *Edge {
	o.OpenTimeout = cmp.Or(o.OpenTimeout, 5*time.Second)
	e := &Edge{meter: o.Meter, log: o.Logger, conns: framing.NewListener(), router: newRouter(&o),
		drained: make(chan struct{})}
	e.stopping, e.beginStopping = context.WithCancel(context.Background())
	e.upstreams = &upstreams{static: o.StaticDialer, rootCAs: o.RootCAs, meter: o.Meter, openTimeout: o.OpenTimeout,
		background: &e.background, shared: pools{use: byAll}}
	e.http = e.newHTTPServer()
	e.background.Start(func() {
		if err := e.http.Serve(e.conns); !errors.Is(err, http.ErrServerClosed) {
			e.log.Error("the edge's HTTP server ended", "err", err)
		}
	})
	return e
}

// Serve serves one connection to the endpoint and returns when it has ended. It owns c. The end of
// ctx aborts the connection and all that it caused.
func (e *Edge) Serve(ctx context.Context, c Client, ep *account.Endpoint, info ClientInfo) {
	if info.Spare.ID != 0 {
		if info.Sealed {
			e.serveSpare(ctx, c, ep, &info)
		} else {
			e.useSpare(c, ep, &info)
		}
		return
	}
	e.connStarted()
	defer e.connEnded()
	if ep.Scheme == "tcp" || info.Sealed {
		e.serveTCP(ctx, c, ep, info)
		return
	}
	e.serveHTTP(ctx, c, ep, info)
}

// Admit evaluates the endpoint's policy for a connection that is not served by the Edge; CodeDenied
// when it denies it.
func (e *Edge) Admit(ctx context.Context, ep *account.Endpoint, info *ClientInfo) error {
	_, err := e.router.evaluateConn(ctx, ep, info)
	return err
}

func (e *Edge) connStarted() {
	e.mu.Lock()
	e.active++
	e.mu.Unlock()
}

func (e *Edge) connEnded() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active--
	e.signalDrainedLocked()
}

// signalDrainedLocked closes drained once the edge drains and nothing is active; mu must be held.
func (e *Edge) signalDrainedLocked() {
	if !e.draining || e.active > 0 {
		return
	}
	select {
	case <-e.drained:
	default:
		close(e.drained)
	}
}

// ExpireAccount makes connections and requests that begin after it read the account's endpoints from
// the store.
func (e *Edge) ExpireAccount(accountID string) {
	e.router.endpoints.expire(accountID)
	e.router.poolMembers.expire(accountID)
}

// ReadEndpoint reads an endpoint that no agent holds from the store, as connections and requests that
// begin after it see it. An error means that the store does not answer.
func (e *Edge) ReadEndpoint(ctx context.Context, accountID, id string) error {
	_, err := e.router.endpoints.cache.Fresh(ctx, endpointKey{accountID: accountID, id: id})
	if account.CodeOf(err) == account.CodeNotFound {
		return nil
	}
	return err
}

// Live returns the number of connections and requests being served.
func (e *Edge) Live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active
}

// idleDrainDelay is how long idle connections stay open after the start of a drain, to end with the
// answer to their next request: closing one while its client writes looks like a failure to the
// client.
const idleDrainDelay = time.Second

// BeginStopping makes HTTP/1 answers carry "Connection: close" from now on. It may be called before
// Drain, while balancers still send new connections.
func (e *Edge) BeginStopping() { e.beginStopping() }

// Drain asks every connection to end: HTTP/1 answers carry "Connection: close"; after
// idleDrainDelay HTTP/2 connections get GOAWAY and idle ones are closed. It returns nil when
// nothing is active, or the error of ctx. New connections are still served, in the same way. It is
// called once.
func (e *Edge) Drain(ctx context.Context) error {
	e.BeginStopping()
	e.mu.Lock()
	e.draining = true
	e.signalDrainedLocked()
	e.mu.Unlock()
	grace := time.NewTimer(idleDrainDelay)
	defer grace.Stop()
	select {
	case <-e.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-grace.C:
	}
	again := time.NewTicker(200 * time.Millisecond) // for connections that become idle later, or never sent a request
	defer again.Stop()
	for {
		e.http.SetKeepAlivesEnabled(false)
		select {
		case <-e.drained:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
	}
}

// Close ends the edge at once and waits for its goroutines. Connections still being served are
// aborted.
func (e *Edge) Close() {
	_ = e.conns.Close()
	_ = e.http.Close() // the listener's Close does not fail
	e.upstreams.shared.closeIdle()
	e.background.Close()
}
