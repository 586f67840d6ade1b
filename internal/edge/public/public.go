// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
)

// Defaults of Options.
const (
	DefaultMaxConns          = 20_000
	DefaultMaxConnsPerClient = 1_000

	idleTimeout     = 2 * time.Minute
	maxHTTP2Streams = 250
	pingAfter       = 30 * time.Second // of silence on an HTTP/2 connection

	// An HTTP/2 connection takes so much of uploads that nobody reads yet. It is several times what
	// one stream may have, so that an upstream that does not read holds up its own upload and not
	// those beside it.
	uploadBuffer     = 1 << 20
	connUploadBuffer = 16 << 20
)

// Client is what is known of the client that sent a request.
type Client struct {
	Addr       netip.AddrPort // port 0 where a proxy does not tell it
	TLS        bool           // spoken with us, or with a trusted proxy
	ServerName string         // that the client asked for in TLS with us
	// Abort resets the connection and drops what is queued for the client. nil where the connection
	// carries other requests too. It does not block, and must not be called after the request was
	// served: the connection may then carry a request of another user.
	Abort func()
}

// Options are what a Server needs. At least one listener is not nil.
type Options struct {
	HTTP, HTTPS  net.Listener
	Certificates *Certificates // with HTTPS

	// FindEndpoint returns the endpoint at host and port; CodeNotFound when there is none.
	FindEndpoint func(ctx context.Context, host string, port int) (*account.Endpoint, error)
	// ServeEndpoint answers a request to the endpoint. The server has set X-Forwarded-For, -Proto and
	// -Host of the request.
	ServeEndpoint func(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, c Client)
	// GrantedHosts reports which of the hosts the account may have now; requests to others are ended.
	// nil = grants are never revoked.
	GrantedHosts func(ctx context.Context, accountID string, hosts []string) (map[string]bool, error)
	// WriteError answers a request with an error page.
	WriteError func(w http.ResponseWriter, r *http.Request, code account.Code, msg string)
	Logger     *slog.Logger

	// connections from TrustedProxies begin with a header of the PROXY protocol, version 1 or 2
	ProxyProtocol  bool
	TrustedProxies []netip.Prefix // whose word about clients counts
	MaxConns       int            // of all clients; 0 = DefaultMaxConns
	// of one IPv4 address or IPv6 /64, trusted proxies excepted; 0 = DefaultMaxConnsPerClient
	MaxConnsPerClient int

	// of a request's header, a PROXY header, a TLS handshake; 0 = framing.HeadTimeout; tests change it
	headerTimeout time.Duration
}

// Server serves the public listeners. It is safe for concurrent use.
type Server struct {
	opt    Options
	log    *slog.Logger
	tls    *tls.Config
	http   *http.Server
	queue  *queue
	conns  *connLimiter
	lookup *lookup
	shakes chan struct{} // handshakes under way
	guard  guard

	stopped chan struct{} // closed by Close
	stop    sync.Once
	tasks   sync.WaitGroup
}

// New makes a Server; Start makes it serve.
func New(o Options) *Server {
	o.MaxConns = cmp.Or(o.MaxConns, DefaultMaxConns)
	o.MaxConnsPerClient = cmp.Or(o.MaxConnsPerClient, DefaultMaxConnsPerClient)
	o.headerTimeout = cmp.Or(o.headerTimeout, framing.HeadTimeout)
	e := &Server{opt: o, log: o.Logger, queue: newQueue(), conns: newConnLimiter(o.MaxConns, o.MaxConnsPerClient, o.Logger),
		lookup: newLookup(o.FindEndpoint), shakes: make(chan struct{}, maxHandshakes), stopped: make(chan struct{})}
	if o.HTTPS != nil {
		e.tls = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: o.Certificates.get}
	}
	e.http = e.newServer()
	return e
}

func (e *Server) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // TLS has ended already; framing lets HTTP/2 through where ALPN agreed on it
	return &http.Server{
		Handler:                      http.HandlerFunc(e.handle),
		ReadHeaderTimeout:            e.opt.headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               framing.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is the upstream's to answer
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxHTTP2Streams, MaxReadFrameSize: framing.MaxFrameSize, SendPingTimeout: pingAfter,
			MaxReceiveBufferPerStream: uploadBuffer, MaxReceiveBufferPerConnection: connUploadBuffer,
		},
		ErrorLog:    slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
		ConnContext: withConn,
		ConnState: func(c net.Conn, state http.ConnState) {
			if framed, ok := c.(*framing.Conn); ok {
				framed.SetState(state)
			}
		},
	}
}

// Start begins to serve. The end of ctx cuts the requests that are being answered.
func (e *Server) Start(ctx context.Context) {
	e.http.BaseContext = func(net.Listener) context.Context { return ctx }
	e.tasks.Go(func() {
		if err := e.http.Serve(e.queue); !errors.Is(err, http.ErrServerClosed) {
			e.log.Error("the public edge's HTTP server ended", "err", err)
		}
	})
	if e.opt.GrantedHosts != nil {
		e.tasks.Go(func() { e.keepGrants(ctx) })
	}
	if l := e.opt.HTTP; l != nil {
		e.tasks.Go(func() { e.accept(ctx, l, false) })
	}
	if l := e.opt.HTTPS; l != nil {
		e.tasks.Go(func() { e.accept(ctx, l, true) })
	}
}

// Live is the number of connections.
func (e *Server) Live() int { return e.conns.live() }

// Shutdown stops listening, closes idle connections, sends GOAWAY on those of HTTP/2, and waits for
// requests under way until ctx is done; what is then left is cut. It comes after the edge's own
// drain, during which connections are still taken: their answers ask the clients to come back over
// another.
func (e *Server) Shutdown(ctx context.Context) error {
	e.closeListeners()
	err := e.http.Shutdown(ctx)
	e.Close()
	return err
}

// Close ends everything at once and waits for it.
func (e *Server) Close() {
	e.stop.Do(func() { close(e.stopped) })
	e.closeListeners()
	_ = e.queue.Close()
	e.conns.closeAll() // first: the HTTP server would wait for what lingers
	_ = e.http.Close() // the error is the queue's, which has none
	e.tasks.Wait()
}

func (e *Server) closeListeners() {
	for _, l := range []net.Listener{e.opt.HTTP, e.opt.HTTPS} {
		if l != nil {
			_ = l.Close()
		}
	}
}
