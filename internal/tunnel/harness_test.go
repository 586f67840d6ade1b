// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority returns a certificate for server.test and the pool that trusts it.
var authority = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server.test"}, DNSNames: []string{"server.test"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
})

// testAddress is where clients reach their server.
const testAddress = "server.test:443"

func clientTrust() *tls.Config {
	_, pool := authority()
	return &tls.Config{RootCAs: pool, ServerName: "server.test", MinVersion: tls.VersionTLS13}
}

// testHandler accepts everything, unless one of its functions refuses, and echoes streams.
type testHandler struct {
	hello  func(ctx context.Context, h Hello) (Welcome, error)
	join   func(ctx context.Context, h Hello) (Welcome, error) // default: refuses
	bind   func(ctx context.Context, s *Session, b Bind) (Bound, error)
	unbind func(ctx context.Context, id string) error
	stream func(ctx context.Context, s *Session, st *Stream)
	renew  func(ctx context.Context, s *Session, token string) (time.Time, error)

	responsiveness func()
	requestLine    func(s *Session, line RequestLine)

	ups   chan *Session
	downs chan error

	mu      sync.Mutex
	next    int
	hellos  []Hello
	unbound []string
}

func newHandler() *testHandler {
	return &testHandler{ups: make(chan *Session, 100), downs: make(chan error, 100),
		responsiveness: func() {}, requestLine: func(*Session, RequestLine) {}}
}

func (h *testHandler) Hello(ctx context.Context, hello Hello, _ net.Addr) (Welcome, error) {
	h.mu.Lock()
	h.next++
	w := Welcome{SessionID: fmt.Sprintf("ts_%d", h.next), AccountID: "acc_1", ServerVersion: "v0"}
	h.hellos = append(h.hellos, hello)
	h.mu.Unlock()
	if h.hello != nil {
		got, err := h.hello(ctx, hello)
		w.Connections, w.ReplicaID, w.Replicas = got.Connections, got.ReplicaID, got.Replicas
		w.SessionID = cmp.Or(got.SessionID, w.SessionID)
		return w, err
	}
	return w, nil
}

func (h *testHandler) Join(ctx context.Context, hello Hello, _ net.Addr) (Welcome, error) {
	if h.join == nil {
		return Welcome{}, errUnknownSession()
	}
	return h.join(ctx, hello)
}

func (h *testHandler) Up(s *Session) { h.ups <- s }

func (h *testHandler) Bind(ctx context.Context, s *Session, b Bind) (Bound, error) {
	if h.bind != nil {
		return h.bind(ctx, s, b)
	}
	return Bound{EndpointID: "ep_" + b.Name, URL: b.URL, ResumeSecret: "r"}, nil
}

func (h *testHandler) Unbind(ctx context.Context, _ *Session, id string) error {
	if h.unbind != nil {
		return h.unbind(ctx, id)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unbound = append(h.unbound, id)
	return nil
}

func (h *testHandler) Renew(ctx context.Context, s *Session, token string) (time.Time, error) {
	if h.renew == nil {
		return time.Time{}, &Error{Code: CodeInvalid, Msg: "there is no token to renew"}
	}
	return h.renew(ctx, s, token)
}

func (h *testHandler) Stream(ctx context.Context, s *Session, st *Stream) {
	if h.stream != nil {
		h.stream(ctx, s, st)
		return
	}
	echo(st)
}

func (h *testHandler) OnResponsiveness(*Session) { h.responsiveness() }

func (h *testHandler) OnRequestLine(s *Session, line RequestLine) { h.requestLine(s, line) }

func (h *testHandler) Down(_ *Session, err error) { h.downs <- err }

func (h *testHandler) tokens() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, x := range h.hellos {
		all = append(all, x.Token)
	}
	return all
}

// echo sends back what it reads and half-closes at the end.
func echo(st *Stream) {
	if st.Accept() != nil {
		return
	}
	if _, err := io.Copy(struct{ io.Writer }{st}, struct{ io.Reader }{st}); err == nil {
		_ = st.CloseWrite()
	} else {
		_ = st.Abort()
	}
}

// testServer is a Server with connections in memory or on loopback.
type testServer struct {
	t       *testing.T
	handler *testHandler
	server  *Server
	tls     *tls.Config
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)

	mu      sync.Mutex
	raw     []net.Conn // of the server's side, live or not, in order
	resumed []bool     // TLS sessions
	errs    []error    // of ServeConn
	serving sync.WaitGroup
	stop    context.CancelFunc
}

const (
	overPipe = "pipe"
	overTCP  = "tcp"
	inPairs  = "pairs" // over TCP, with sealed streams over parked connections
)

func forEachTransport(t *testing.T, test func(t *testing.T, transport string)) {
	t.Helper()
	for _, transport := range []string{overPipe, overTCP, inPairs} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			test(t, transport)
		})
	}
}

func newTestServer(t *testing.T, transport string, handler *testHandler) *testServer {
	t.Helper()
	cert, _ := authority()
	ctx, stop := context.WithCancel(context.Background())
	h := &testServer{t: t, handler: handler, server: NewServer(ServerConfig{Handler: handler}), stop: stop,
		tls: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{ALPN},
			MinVersion:                  tls.VersionTLS13,
			DynamicRecordSizingDisabled: true}}
	t.Cleanup(func() {
		stop()
		h.serving.Wait()
		awaitNoPairs(t, h.server.cfg.PairBudget, &h.server.tickets)
	})
	if transport == overPipe {
		h.dial = func(context.Context, string, string) (net.Conn, error) {
			if ctx.Err() != nil {
				return nil, errors.New("the host is gone")
			}
			near, far := net.Pipe()
			h.serve(ctx, far)
			return near, nil
		}
		return h
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	h.serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			h.serve(ctx, c)
		}
	})
	h.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", ln.Addr().String())
	}
	return h
}

func (h *testServer) serve(ctx context.Context, raw net.Conn) {
	h.mu.Lock()
	h.raw = append(h.raw, raw)
	server := h.server
	h.mu.Unlock()
	h.serving.Go(func() {
		c := tls.Server(TuneConn(raw), h.tls)
		if server.PresentsTicket(ctx, c.NetConn()) {
			_ = server.ServeTicket(ctx, c.NetConn())
			return
		}
		if err := c.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return
		}
		h.mu.Lock()
		h.resumed = append(h.resumed, c.ConnectionState().DidResume)
		h.mu.Unlock()
		err := server.ServeConn(ctx, c)
		h.mu.Lock()
		h.errs = append(h.errs, err)
		h.mu.Unlock()
	})
}

// acceptedConns returns the number of connections so far.
func (h *testServer) acceptedConns() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.raw)
}

// closeConns closes connections on the server's side without a message.
func (h *testServer) closeConns(indexes ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range indexes {
		if tcp, ok := h.raw[i].(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = h.raw[i].Close()
	}
}

// testClient is a running Client.
type testClient struct {
	*Client
	result chan error // gets Run's once
	stop   context.CancelFunc
	downs  chan error
}

// startClient runs a client of the server until the test ends.
func (h *testServer) startClient(cfg ClientConfig) *testClient {
	h.t.Helper()
	return h.newClient(cfg).start(h.t)
}

// newClient returns a client that is not started.
func (h *testServer) newClient(cfg ClientConfig) *testClient {
	if cfg.Hello == nil {
		cfg.Hello = func() Hello { return Hello{Role: RoleForwarder, Token: "flt_x", ClientVersion: "v1", OS: "test"} }
	}
	cfg.Address = testAddress
	if cfg.TLS == nil {
		cfg.TLS = clientTrust()
	}
	if cfg.DialContext == nil {
		cfg.DialContext = h.dial
	}
	r := &testClient{result: make(chan error, 1), downs: make(chan error, 1000)}
	cfg.OnDown = func(err error, _ time.Duration) { r.downs <- err }
	r.Client = NewClient(cfg)
	return r
}

func (r *testClient) start(t *testing.T) *testClient {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.result <- r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		awaitNoPairs(t, r.cfg.PairBudget, &tickets{})
	})
	return r
}

func agentHello() Hello {
	return Hello{Role: RoleAgent, Token: "flt_x", ClientVersion: "v1", OS: "test"}
}

// awaitSession waits for the client's session.
func (r *testClient) awaitSession(t *testing.T) *Session {
	t.Helper()
	s, err := r.Wait(timeoutContext(t))
	if err != nil {
		t.Fatalf("no session: %v", err)
	}
	return s
}

// timeoutContext returns a context that bounds a test's waits.
func timeoutContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
