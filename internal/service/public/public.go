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
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/service/acme"
	"github.com/fairlead-dev/fairlead/internal/service/ticketkeys"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Defaults of Options.
const (
	DefaultMaxConns          = 20_000
	DefaultMaxConnsPerClient = 1_000

	idleTimeout     = 2 * time.Minute
	maxHTTP2Streams = 250
	pingAfter       = 30 * time.Second // silence on an HTTP/2 connection until a ping

	// uploadBuffer and connUploadBuffer are the bytes of uploads that one stream and one HTTP/2
	// connection take before an upstream reads them. The latter is several times the former, so
	// that an upstream that does not read delays its own upload and not those beside it.
	uploadBuffer     = 1 << 20
	connUploadBuffer = 16 << 20
)

// Client is what is known of the client that sent a request.
type Client struct {
	Addr       netip.AddrPort // port 0 where a proxy does not state it
	TLS        bool           // with the listener, or with a trusted proxy
	ServerName string         // SNI on the listener; "" = none
	// Port is that of the client's URL where it is not the endpoint's; 0 otherwise.
	Port int
	// Aborter is nil where the connection carries other requests too. It does not block, and must not be
	// called after the request was served: the connection may then carry a request of another user.
	Aborter trafficpolicy.Aborter
	// Upstreams are private to the connection; nil behind a trusted proxy.
	Upstreams *edge.PrivateUpstreams
}

// Endpoints finds endpoints of the public binding.
type Endpoints interface {
	// FindEndpoint returns the endpoint at the host and the first of the ports that has one;
	// CodeNotFound when there is none.
	FindEndpoint(ctx context.Context, host string, ports ...int) (*account.Endpoint, error)
	// OnlinePublic returns the endpoint at host and port that an agent has bound on this server, and
	// when it asked for that; nil when there is none. It is used while FindEndpoint does not answer.
	OnlinePublic(host string, port int) (ep *account.Endpoint, since time.Time)
	// GrantedHosts reports which hosts the account may have now; requests to others are ended.
	GrantedHosts(ctx context.Context, accountID string, hosts []string) (map[string]bool, error)
}

// Handler answers requests.
type Handler interface {
	// ServeEndpoint answers a request to the endpoint. The server has set X-Forwarded-For, -Proto
	// and -Host of the request.
	ServeEndpoint(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, c Client)
	// WriteError answers a request with an error page.
	WriteError(w http.ResponseWriter, r *http.Request, code account.Code, msg string)
}

// Options are what a Server needs. At least one listener is not nil.
type Options struct {
	HTTP, HTTPS  net.Listener
	Certificates *Certificates    // certificates of HTTPS
	ACME         *acme.Manager    // answers challenges; nil = none
	TicketKeys   *ticketkeys.Keys // session ticket keys; nil = those that crypto/tls makes, which end with the process

	Endpoints Endpoints
	Handler   Handler
	Logger    *slog.Logger

	// ProxyProtocol makes connections from TrustedProxies begin with a PROXY protocol header,
	// version 1 or 2.
	ProxyProtocol  bool
	TrustedProxies []netip.Prefix // proxies whose statements about clients are believed
	MaxConns       int            // limit for all clients; 0 = DefaultMaxConns
	// MaxConnsPerClient is the limit per IPv4 address or IPv6 /64, except trusted proxies; 0 =
	// DefaultMaxConnsPerClient.
	MaxConnsPerClient int

	// headerTimeout limits request header, PROXY header and handshake; 0 = framing.HeadTimeout.
	// Only tests set it.
	headerTimeout time.Duration
}

// usualPorts returns the ports of each scheme at which endpoints are expected: the scheme's own, and
// the listener's.
func (o *Options) usualPorts() map[string][]int {
	usual := map[string][]int{"http": {account.DefaultPort("http")}, "https": {account.DefaultPort("https")}}
	for scheme, l := range map[string]net.Listener{"http": o.HTTP, "https": o.HTTPS} {
		if l == nil {
			continue
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok && a.Port != usual[scheme][0] {
			usual[scheme] = append(usual[scheme], a.Port)
		}
	}
	return usual
}

// Server serves the public listeners. It is safe for concurrent use.
type Server struct {
	opt        Options
	log        *slog.Logger
	tls        *tls.Config
	http       *http.Server
	queue      *framing.Listener
	conns      *connLimiter
	lookup     *endpointLookup
	handshakes chan struct{} // handshakes holds a value per handshake in progress.
	grants     activeRequests

	stopped chan struct{} // stopped is closed by Close.
	stop    sync.Once
	tasks   sync.WaitGroup
}

// New makes a Server; Start makes it serve.
func New(o Options) *Server {
	o.MaxConns = cmp.Or(o.MaxConns, DefaultMaxConns)
	o.MaxConnsPerClient = cmp.Or(o.MaxConnsPerClient, DefaultMaxConnsPerClient)
	o.headerTimeout = cmp.Or(o.headerTimeout, framing.HeadTimeout)
	s := &Server{opt: o, log: o.Logger, queue: framing.NewListener(),
		conns:      newConnLimiter(o.MaxConns, o.MaxConnsPerClient, o.Logger),
		lookup:     newLookup(o.Endpoints, o.usualPorts()),
		handshakes: make(chan struct{}, maxHandshakes), stopped: make(chan struct{})}
	if o.HTTPS != nil {
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: o.Certificates.getCertificate}
		o.TicketKeys.Install("public", s.tls)
		if o.ACME != nil {
			s.tls.GetConfigForClient = o.ACME.ChallengeConfig
		}
	}
	s.http = s.newServer()
	return s
}

func (s *Server) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // TLS has ended already; framing lets HTTP/2 through where ALPN agreed on it
	return &http.Server{
		Handler:                      http.HandlerFunc(s.handle),
		ReadHeaderTimeout:            s.opt.headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               framing.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is the upstream's to answer
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxHTTP2Streams, MaxReadFrameSize: framing.MaxFrameSize, SendPingTimeout: pingAfter,
			MaxReceiveBufferPerStream: uploadBuffer, MaxReceiveBufferPerConnection: connUploadBuffer,
		},
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext: withConn,
		ConnState: func(c net.Conn, state http.ConnState) {
			if framed, ok := c.(*framing.Conn); ok {
				framed.SetState(state)
			}
		},
	}
}

// Start starts to serve. The end of ctx aborts the requests in progress.
func (s *Server) Start(ctx context.Context) {
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	s.tasks.Go(func() {
		if err := s.http.Serve(s.queue); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the public edge's HTTP server ended", "err", err)
		}
	})
	s.tasks.Go(func() { s.endRevoked(ctx) })
	if l := s.opt.HTTP; l != nil {
		s.tasks.Go(func() { s.accept(ctx, l, false) })
	}
	if l := s.opt.HTTPS; l != nil {
		s.tasks.Go(func() { s.accept(ctx, l, true) })
	}
}

// ExpireAccount makes requests that begin after it look up the account's endpoints in the store.
func (s *Server) ExpireAccount(accountID string) { s.lookup.expire(accountID) }

// ForgetAccount makes requests that begin after it look up the account's endpoints in the store, and
// not find them while it does not answer: a domain of theirs may be revoked.
func (s *Server) ForgetAccount(accountID string) { s.lookup.forget(accountID) }

// Live returns the number of connections.
func (s *Server) Live() int { return s.conns.live() }

// Shutdown stops listening, closes idle connections, sends GOAWAY on HTTP/2 and waits for requests
// in progress until ctx is done, which aborts the rest. It follows the edge's own drain, during
// which connections are still accepted: their answers ask the clients to reconnect.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeListeners()
	err := s.http.Shutdown(ctx)
	s.Close()
	return err
}

// Close ends everything at once and waits for it.
func (s *Server) Close() {
	s.stop.Do(func() { close(s.stopped) })
	s.closeListeners()
	_ = s.queue.Close()
	s.conns.closeAll() // first: the HTTP server would wait for what lingers
	_ = s.http.Close() // the error is the queue's, which has none
	s.tasks.Wait()
}

func (s *Server) closeListeners() {
	for _, l := range []net.Listener{s.opt.HTTP, s.opt.HTTPS} {
		if l != nil {
			_ = l.Close()
		}
	}
}
