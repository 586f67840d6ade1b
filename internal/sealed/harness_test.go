// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ownAccount = "ac-1"
)

var endpoint = account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}

// serviceFunc is what a service does with the two streams of a call.
type serviceFunc func(forwarder, agent *tunnel.Stream)

func honest(forwarder, agent *tunnel.Stream) {
	_, _ = relay.Join(context.Background(), forwarder, agent, relay.Options{})
}

// call is one call on its way through the service, from OnStream's and Stream's sides.
type call struct {
	service serviceFunc
	agent   chan *tunnel.Stream
	done    chan struct{} // done is closed when the test has ended.
}

// world has a service with the sessions of a forwarder and of an agent. It is the service's Handler.
type world struct {
	forwarder *tunnel.Session
	agents    chan *tunnel.Session
	sessions  atomic.Int64
	calls     sync.Map // of *call, by trace id
	ids       atomic.Int64
}

// newWorld starts a service, a forwarder and an agent that run until the test ends.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{agents: make(chan *tunnel.Session, 1)}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	authority := newAuthority(t)
	cert := authority.sign(t, func(c *x509.Certificate) { c.DNSNames = []string{"server.test"} })
	server := tunnel.NewServer(tunnel.ServerConfig{Handler: w})
	serverTLS := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{tunnel.ALPN},
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}
	dial := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		running.Go(func() {
			c := tls.Server(tunnel.TuneConn(far), serverTLS)
			if c.HandshakeContext(ctx) == nil {
				_ = server.ServeConn(ctx, c)
			}
			_ = far.Close()
		})
		return near, nil
	}
	start := func(role tunnel.Role) *tunnel.Session {
		client := tunnel.NewClient(tunnel.ClientConfig{Address: "server.test:443", DialContext: dial, Connections: 1,
			TLS:   &tls.Config{RootCAs: authority.pool(), ServerName: "server.test", MinVersion: tls.VersionTLS13},
			Hello: func() tunnel.Hello { return tunnel.Hello{Role: role, Token: "x", ClientVersion: "v1", OS: "x"} },
			OnStream: func(_ context.Context, _ *tunnel.Session, st *tunnel.Stream) {
				c := w.call(st)
				if st.Accept() == nil {
					c.agent <- st
					<-c.done
				}
			}})
		running.Go(func() { _ = client.Run(ctx) })
		s, err := client.Wait(timeoutContext(t))
		must.Succeed(t, err)
		return s
	}
	start(tunnel.RoleAgent)
	w.forwarder = start(tunnel.RoleForwarder)
	return w
}

func (w *world) call(st *tunnel.Stream) *call {
	c, _ := w.calls.Load(st.Header().TraceID)
	return c.(*call)
}

func (w *world) Hello(context.Context, tunnel.Hello, net.Addr) (tunnel.Welcome, error) {
	return tunnel.Welcome{SessionID: "ts_" + strconv.FormatInt(w.sessions.Add(1), 10), AccountID: ownAccount,
		ServerVersion: "v0"}, nil
}

func (w *world) Join(context.Context, tunnel.Hello, net.Addr) (tunnel.Welcome, error) {
	return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeUnknownSession}
}

func (w *world) Up(s *tunnel.Session) {
	if s.Hello().Role == tunnel.RoleAgent {
		w.agents <- s
	}
}

func (w *world) Bind(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
	return tunnel.Bound{}, nil
}
func (w *world) Unbind(context.Context, *tunnel.Session, string) error { return nil }
func (w *world) Renew(context.Context, *tunnel.Session, string) (time.Time, error) {
	return time.Time{}, nil
}
func (w *world) OnResponsiveness(*tunnel.Session)                  {}
func (w *world) OnRequestLine(*tunnel.Session, tunnel.RequestLine) {}
func (w *world) Down(*tunnel.Session, error)                       {}

// Stream serves a call.
func (w *world) Stream(ctx context.Context, _ *tunnel.Session, forwarder *tunnel.Stream) {
	session := <-w.agents
	w.agents <- session
	agent, err := session.Open(ctx, forwarder.Header())
	if err != nil || forwarder.Accept() != nil {
		return
	}
	w.call(forwarder).service(forwarder, agent)
}

// open opens a call and returns the streams of its ends.
func (w *world) open(t testing.TB, service serviceFunc) (forwarder, agent *tunnel.Stream) {
	t.Helper()
	id := strconv.FormatInt(w.ids.Add(1), 10)
	c := &call{service: service, agent: make(chan *tunnel.Stream, 1), done: make(chan struct{})}
	w.calls.Store(id, c)
	forwarder, err := w.forwarder.Open(timeoutContext(t), tunnel.OpenHeader{EndpointID: "ep_1", TraceID: id})
	must.Succeed(t, err)
	must.Succeed(t, forwarder.WaitOpened(timeoutContext(t)))
	t.Cleanup(func() {
		_ = forwarder.Close()
		close(c.done)
	})
	return forwarder, wait.Receive(t, "the agent's stream", c.agent)
}

// ends are the two ends of a sealed connection, or why there is none.
type ends struct {
	forwarder, agent       *sealed.Conn
	forwarderErr, agentErr error
	incoming               *sealed.Incoming
}

// connect opens a sealed connection through the service.
func (w *world) connect(t testing.TB, to *sealed.Trust, as *sealed.Identity, service serviceFunc) ends {
	t.Helper()
	forwarder, agent := w.open(t, service)
	return connect(t, forwarder, agent, to, as, sealed.Header{URL: endpoint})
}

func connect(t testing.TB, forwarder, agent sealed.Below, to *sealed.Trust, as *sealed.Identity,
	h sealed.Header,
) (e ends) {
	t.Helper()
	ctx := timeoutContext(t)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		if e.incoming, e.agentErr = as.Accept(ctx, agent); e.agentErr == nil {
			e.agent, e.agentErr = e.incoming.Open()
		}
	})
	e.forwarder, e.forwarderErr = to.Connect(ctx, forwarder, h)
	accepting.Wait()
	return e
}

// mustConnect is connect with ends that trust each other.
func (w *world) mustConnect(t testing.TB, to *sealed.Trust, as *sealed.Identity, service serviceFunc) ends {
	t.Helper()
	e := w.connect(t, to, as, service)
	must.Succeed(t, e.forwarderErr)
	must.Succeed(t, e.agentErr)
	return e
}

// authority is an owner's root.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-100 * time.Hour),
		NotAfter: time.Now().Add(100 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return &authority{cert, key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return key
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// sign returns a certificate that names the endpoint, unless change changes that.
func (a *authority) sign(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{sealed.Name(ownAccount, endpoint)}}
	if change != nil {
		change(template)
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func static(c tls.Certificate) sealed.CertificateSource {
	return func() (*tls.Certificate, error) { return &c, nil }
}

// identity returns the Identity of a certificate, and its key.
func identity(t testing.TB, c tls.Certificate) (*sealed.Identity, trust.Pin) {
	t.Helper()
	i, err := sealed.NewIdentity(sealed.IdentityOptions{Account: ownAccount, Certificate: static(c)})
	must.Succeed(t, err)
	return i, i.Key()
}

func newTrust(t testing.TB, o sealed.TrustOptions) *sealed.Trust {
	t.Helper()
	o.Account, o.Mode = ownAccount, sealed.Require
	to, err := sealed.NewTrust(o)
	must.Succeed(t, err)
	return to
}

func (a *authority) trust(t testing.TB) *sealed.Trust {
	t.Helper()
	return newTrust(t, sealed.TrustOptions{Authorities: []*x509.Certificate{a.cert}})
}

// timeoutContext returns a context that bounds a test's waits.
func timeoutContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
