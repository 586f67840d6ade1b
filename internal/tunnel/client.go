// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	minBackoff         = 200 * time.Millisecond
	defaultMaxBackoff  = 10 * time.Second
	defaultConnections = 2
)

// ClientConfig configures a Client. Address, TLS and Hello are required.
type ClientConfig struct {
	Address string // host:port
	// TLS is cloned. ServerName is taken from Address when empty; ALPN, version 1.3 and a cache of
	// session tickets are set.
	TLS *tls.Config
	// DialContext dials the server, within 10 s, also its replicas at the addresses that they
	// announce. Default: a net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Hello returns the first message of every session; it may read the token anew each time.
	// SessionID and JoinSecret stay empty.
	Hello func() Hello
	// RenewToken makes sessions present Hello's token when it has changed, within 10 s, so that they
	// outlive the one with which they began. Both must be of the same subject. A server without
	// FeatureRenew is sent nothing.
	RenewToken bool
	MaxBackoff time.Duration // the longest wait between two attempts; default 10 s
	// Connections is the number of connections of a session, 1-16. 0: two, up to eight while they
	// carry bulk, up to sixteen while packets are lost without bbr. A number in the server's
	// Welcome has precedence; the session does not grow then either.
	Connections int
	// Authorities learns what the server announces of its certificate authorities. May be nil.
	Authorities Learner
	// MaxLegs is the most replicas of the server that a session has connections with. Default 3.
	MaxLegs int

	// OnUp is called after Welcome and before the session counts as up: an agent binds here. An
	// error closes the session; the Client tries again later, unless it is an *Error whose Code is
	// final. ctx ends with the session.
	OnUp func(ctx context.Context, s *Session) error
	// OnDown is called when a session has ended, when the server drains, and for each attempt that
	// failed. The next attempt follows after retryIn.
	OnDown func(err error, retryIn time.Duration)
	// OnStream serves a stream that the server opened, in a goroutine of its own. It must call
	// Accept or Refuse; the stream is ended when it returns. ctx ends with the stream's connection.
	// Default: streams are refused.
	OnStream func(ctx context.Context, s *Session, st *Stream)
	// OnResponsiveness is called when what the session's Unresponsive returns may have changed. It
	// must not block.
	OnResponsiveness func(*Session)
	// OnLegs is called when what the session's Legs or WantedLegs return may have changed, except
	// for the number of streams. It must not block.
	OnLegs func(*Session)
	// OnRequestLine receives the request lines. It must not block.
	OnRequestLine func(RequestLine)
	WindowBudget  *WindowBudget // shared by all Clients and Servers of a process; default: NewWindowBudget(0)
	PairBudget    *PairBudget   // likewise; default: NewPairBudget()
	Logger        *slog.Logger  // default: none
}

// Client maintains one session with the server. It is safe for concurrent use; Run is called once.
type Client struct {
	cfg ClientConfig
	tls *tls.Config // TLS of native connections
	// webSocketTLS is the TLS of WebSockets.
	webSocketTLS *tls.Config
	carrier      carrierChoice
	goroutines   sync.WaitGroup // connections' and sessions' goroutines
	addresses    announcedAddresses
	congestion   congestionWarning
	path         pathWatch
	// pathChanged gets a token when the next attempt to connect need not wait.
	pathChanged chan struct{}

	mu      sync.Mutex
	session *Session      // the session that is up and that the server does not drain, or nil
	changed chan struct{} // changed is closed and replaced when session or ended changes.
	ended   error         // ended is what Wait returns once Run has returned.
}

// NewClient returns a Client; Run starts it.
func NewClient(cfg ClientConfig) *Client {
	if cfg.DialContext == nil {
		cfg.DialContext = (&net.Dialer{}).DialContext
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = defaultMaxBackoff
	}
	if cfg.MaxLegs <= 0 {
		cfg.MaxLegs = defaultMaxLegs
	}
	if cfg.WindowBudget == nil {
		cfg.WindowBudget = NewWindowBudget(0)
	}
	cfg.PairBudget = cmp.Or(cfg.PairBudget, NewPairBudget())
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	native := clientTLS(cfg)
	return &Client{cfg: cfg, tls: native, webSocketTLS: webSocketTLS(native), changed: make(chan struct{}),
		path: pathWatch{sourceOf: sourceAddress}, pathChanged: make(chan struct{}, 1),
		addresses: announcedAddresses{service: cfg.Address, lookup: lookupIP, failed: map[ReplicaAddress]time.Time{}}}
}

// Session returns the session that is up, or nil. A session that the server drains does not count.
func (c *Client) Session() *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Wait waits for a session that is up and returns it. It returns ctx's error, or Run's once Run has
// returned.
func (c *Client) Wait(ctx context.Context) (*Session, error) {
	for {
		c.mu.Lock()
		s, changed, ended := c.session, c.changed, c.ended
		c.mu.Unlock()
		switch {
		case ended != nil:
			return nil, ended
		case s != nil:
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Client) setSession(s *Session, ended error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.ended = s, ended
	close(c.changed)
	c.changed = make(chan struct{})
}

// Run connects, and reconnects with full jitter between 0.2 s and MaxBackoff, or at once when the
// machine has moved to another network, until ctx is done
// (nil) or the server refuses with a final code (*Error). When ctx ends, streams are aborted, and
// bytes that were already written get a second to arrive. When Run returns, every connection is
// closed and every OnStream has returned.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	c.goroutines.Go(func() { c.watchPath(ctx) })
	err := c.run(ctx)
	cancel()
	ended := cmp.Or(err, net.ErrClosed)
	c.setSession(nil, ended)
	c.goroutines.Wait()
	return err
}

func (c *Client) run(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		began := time.Now()
		up, err := c.runSession(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended the session
		}
		var e *Error
		if errors.As(err, &e) && e.Code.Final() {
			return e
		}
		if up && (time.Since(began) >= c.cfg.MaxBackoff || e != nil && e.Code == CodeDraining) {
			attempt = 0 // a session that ends as soon as it is up counts as a failure
		}
		wait := backoff(attempt, c.cfg.MaxBackoff)
		if c.cfg.OnDown != nil {
			c.cfg.OnDown(err, wait)
		}
		retry := time.NewTimer(wait)
		select {
		case <-retry.C:
		case <-c.pathChanged:
			retry.Stop()
		case <-ctx.Done():
			return nil
		}
	}
}

// runSession runs one session until it ends or the server drains it. It reports whether the session
// was up.
func (c *Client) runSession(ctx context.Context) (bool, error) {
	hello := c.hello()
	s, err := c.startSession(ctx, hello)
	if err != nil {
		return false, err
	}
	sctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	c.goroutines.Go(func() {
		<-s.Done()
		stop()
		cancel()
	})
	c.goroutines.Go(func() { c.manageConnections(sctx, s) })
	if s.Carrier().Name == CarrierWebSocket {
		c.goroutines.Go(func() { c.returnToNative(sctx, s) })
	}
	if c.cfg.RenewToken {
		c.goroutines.Go(func() { c.renewTokens(sctx, s, hello.Token) })
	}
	if c.cfg.OnUp != nil {
		if err := c.cfg.OnUp(sctx, s); err != nil {
			s.abort(err)
			return false, err
		}
	}
	c.setSession(s, nil)
	defer c.setSession(nil, nil)
	select {
	case <-s.Done():
		return true, s.Err()
	case <-s.PeerDraining():
		c.goroutines.Go(s.closeWhenIdle)
		return true, &Error{Code: CodeDraining, Msg: "the server is about to stop"}
	}
}

// handleMessage implements sideHandler, as the methods below do.
func (c *Client) handleMessage(l *link, m *message) error {
	switch m.Type {
	case typeBound, typeUnbound, typeRenewed, typeTicketed, typeError:
		l.session.requests.handleAnswer(m)
	case typeConnections:
		l.session.legs.handleConnections(m.Connections)
	case typeReplicas:
		l.session.legs.handleReplicas(l, m.Replicas, m.ReplicaAddresses)
	case typeAuthorities:
		c.learn(m.Authorities)
	case typeRetired:
		return l.handleRetired()
	case typeStop:
		if m.Error.Code != CodeDraining || !l.session.legs.hasOther(l) {
			l.session.abort(m.Error)
		}
		return m.Error
	}
	return nil
}

func (c *Client) learns() bool { return c.cfg.Authorities != nil && c.cfg.Authorities.Learns() }

func (c *Client) learn(announced [][]byte) {
	if len(announced) == 0 || !c.learns() {
		return
	}
	if err := c.cfg.Authorities.Learn(announced); err != nil {
		c.cfg.Logger.Warn("the certificate authorities that the server announced are not kept", "error", err)
	}
}

func (c *Client) handleRequestLine(line RequestLine) {
	if c.cfg.OnRequestLine != nil {
		c.cfg.OnRequestLine(line)
	}
}

func (c *Client) handleStream(ctx context.Context, st *Stream) {
	if c.cfg.OnStream == nil {
		_ = st.Refuse(RefusedUnknownEndpoint)
		return
	}
	c.cfg.OnStream(ctx, st.Session(), st)
}

func (c *Client) responsivenessChanged(s *Session) {
	wake(s.legs.connsChanged) // a replica that does not respond may be replaced
	s.legs.notify()
	if f := c.cfg.OnResponsiveness; f != nil {
		f(s)
	}
}

func (*Client) sessionEnded(*Session, error) {}

// backoff returns a random wait between 0 and 0.2 s doubled by every attempt, at most maxWait
// ("full jitter").
func backoff(attempt int, maxWait time.Duration) time.Duration {
	ceiling := min(maxWait, minBackoff<<min(attempt, 10))
	return rand.N(ceiling)
}
