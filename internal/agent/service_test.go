// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMain(m *testing.M) {
	if os.Getenv(benchmarkedAgent) != "" {
		runBenchmarkedAgent()
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	patience   = 20 * time.Second // how long a test waits for what must happen
	endpointID = "ep-0000000000000000000000test"
)

// service is a tunnel server with a handler that tests steer.
type service struct {
	t      testing.TB
	server *tunnel.Server
	cert   tls.Certificate
	caPEM  []byte
	addr   string

	hello func(tunnel.Hello) error
	bind  func(ctx context.Context, s *tunnel.Session, b tunnel.Bind) (tunnel.Bound, error)

	binds   chan tunnel.Bind
	bound   chan *tunnel.Session // after each bind that succeeded
	unbinds chan string
	resumed chan bool // TLS of each connection
	// of the welcome: the id of this replica and how many there are
	replica  string
	replicas int
	// unbinds before the agent stops are expected
	mayUnbind bool
	unbind    func()

	mu       sync.Mutex
	sessions int
	conns    map[net.Conn]bool
	killed   bool
	ln       net.Listener
	wg       sync.WaitGroup
}

// newService prepares a service on a port of this machine; listen starts it.
func newService(t testing.TB) *service {
	t.Helper()
	https := httptest.NewTLSServer(nil) // lends its certificate for 127.0.0.1
	defer https.Close()
	svc := &service{
		t: t, cert: https.TLS.Certificates[0],
		caPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw}),
		hello: func(tunnel.Hello) error { return nil },
		binds: make(chan tunnel.Bind, 100), bound: make(chan *tunnel.Session, 100), unbinds: make(chan string, 100),
		resumed: make(chan bool, 1000),
		conns:   map[net.Conn]bool{},
	}
	svc.bind = func(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) { return svc.grant(), nil }
	svc.server = tunnel.NewServer(tunnel.ServerConfig{Handler: svc})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	svc.addr, svc.ln = ln.Addr().String(), ln
	t.Cleanup(svc.stop)
	return svc
}

func (svc *service) start() *service {
	config := &tls.Config{Certificates: []tls.Certificate{svc.cert}, NextProtos: []string{tunnel.ALPN},
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}
	svc.wg.Go(func() {
		for {
			raw, err := svc.ln.Accept()
			if err != nil {
				return
			}
			svc.wg.Go(func() { svc.serveConn(raw, config) })
		}
	})
	return svc
}

func (svc *service) serveConn(raw net.Conn, config *tls.Config) {
	svc.mu.Lock()
	svc.conns[raw] = true
	if svc.killed {
		_ = raw.Close()
	}
	svc.mu.Unlock()
	defer func() {
		svc.mu.Lock()
		delete(svc.conns, raw)
		svc.mu.Unlock()
		_ = raw.Close()
	}()
	conn := tls.Server(tunnel.TuneConn(raw), config)
	if err := conn.Handshake(); err != nil {
		return
	}
	svc.resumed <- conn.ConnectionState().DidResume
	_ = svc.server.ServeConn(context.Background(), conn)
}

// cut breaks every connection, as a network would.
func (svc *service) cut() {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	for c := range svc.conns {
		_ = c.Close()
	}
}

// kill ends the service as SIGKILL does.
func (svc *service) kill() {
	svc.mu.Lock()
	svc.killed = true
	svc.mu.Unlock()
	_ = svc.ln.Close()
	svc.cut()
}

func (svc *service) stop() {
	_ = svc.ln.Close()
	svc.cut()
	svc.wg.Wait()
}

func (svc *service) Hello(_ context.Context, h tunnel.Hello, _ net.Addr) (tunnel.Welcome, error) {
	if err := svc.hello(h); err != nil {
		return tunnel.Welcome{}, err
	}
	svc.mu.Lock()
	defer svc.mu.Unlock()
	svc.sessions++
	return tunnel.Welcome{SessionID: fmt.Sprintf("ts-%d", svc.sessions), ServerVersion: "1.2.3",
		ReplicaID: svc.replica, Replicas: svc.replicas}, nil
}

// Join admits every session if there are replicas.
func (svc *service) Join(_ context.Context, h tunnel.Hello, _ net.Addr) (tunnel.Welcome, error) {
	if svc.replica == "" {
		return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeUnknownSession,
			Msg: "the session has ended: begin a new one"}
	}
	return tunnel.Welcome{SessionID: h.SessionID, ReplicaID: svc.replica, Replicas: svc.replicas}, nil
}

func (svc *service) Up(*tunnel.Session) {}

func (svc *service) Bind(ctx context.Context, s *tunnel.Session, b tunnel.Bind) (tunnel.Bound, error) {
	svc.binds <- b
	bound, err := svc.bind(ctx, s, b)
	if err == nil {
		svc.bound <- s
	}
	return bound, err
}

// grant is a bind's usual answer, with a resume secret of its own.
func (svc *service) grant() tunnel.Bound {
	svc.mu.Lock()
	defer svc.mu.Unlock()
	return tunnel.Bound{EndpointID: endpointID, URL: "http://hello.demo",
		ResumeSecret: fmt.Sprintf("secret-%d", svc.sessions)}
}

func (svc *service) Renew(context.Context, *tunnel.Session, string) (time.Time, error) {
	return time.Time{}, &tunnel.Error{Code: tunnel.CodeInvalid, Msg: "there is no token to renew"}
}

func (svc *service) Unbind(_ context.Context, s *tunnel.Session, id string) error {
	select {
	case <-s.PeerDraining():
	default:
		if svc.mayUnbind {
			break
		}
		svc.t.Error("the agent gave its endpoint back before it said that it stops: streams may be on their way to it")
	}
	svc.unbinds <- id
	if svc.unbind != nil {
		svc.unbind()
	}
	return nil
}

func (svc *service) Stream(_ context.Context, _ *tunnel.Session, st *tunnel.Stream) {
	_ = st.Refuse(tunnel.RefusedForbidden)
}

func (svc *service) OnResponsiveness(*tunnel.Session) {}

func (svc *service) OnRequestLine(*tunnel.Session, tunnel.RequestLine) {}

func (svc *service) Down(*tunnel.Session, error) {}

// header names the agent's endpoint.
func header() tunnel.OpenHeader {
	return tunnel.OpenHeader{EndpointID: endpointID, Host: "hello.demo", Port: 80, ClientAddr: "10.0.0.5:4242",
		Pod: &tunnel.PodIdentity{Namespace: "demo", Name: "client"}}
}

// open opens a stream to the agent.
func open(t *testing.T, s *tunnel.Session, h tunnel.OpenHeader) *tunnel.Stream {
	t.Helper()
	st, err := s.Open(t.Context(), h)
	must.Succeed(t, err)
	_ = st.SetDeadline(time.Now().Add(patience))
	return st
}

// wantRefused opens a stream and expects this refusal.
func wantRefused(t *testing.T, s *tunnel.Session, h tunnel.OpenHeader, want tunnel.RefuseCode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st := open(t, s, h)
	defer func() { _ = st.Close() }()
	var refused *tunnel.RefusedError
	if err := st.WaitOpened(ctx); !errors.As(err, &refused) || refused.Code != want {
		t.Errorf("got %v, want refusal %v", err, want)
	}
}

// running is an agent under test.
type running struct {
	t      *testing.T
	agent  *agent.Agent
	events chan agent.Event
	stop   context.CancelFunc
	result chan error
}

// run starts an agent for http://hello.demo that forwards to upstream.
func run(t *testing.T, svc *service, upstream string, change func(*agent.Options)) *running {
	t.Helper()
	config, err := trust.Options{CAPEM: svc.caPEM}.ClientConfig()
	must.Succeed(t, err)
	to, err := agent.ParseUpstream("http", upstream)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, events: make(chan agent.Event, 10_000), stop: cancel, result: make(chan error, 1)}
	o := agent.Options{
		ServerOptions: agent.ServerOptions{Server: "https://" + svc.addr, Address: svc.addr, TLS: config,
			Token: func() string { return "flt_test" }, MaxBackoff: 50 * time.Millisecond},
		InstanceID: "in-test",
		Endpoints: []agent.Endpoint{{URL: account.EndpointURL{Scheme: "http", Host: "hello.demo", Port: 80},
			Binding: "kubernetes", Name: "n", Description: "d", Metadata: "m", PoolingEnabled: true,
			Upstream: to}},
		Observer: observerFunc(func(e agent.Event) {
			select {
			case r.events <- e:
			default:
				t.Error("more events than a test can produce")
			}
		}),
	}
	if change != nil {
		change(&o)
	}
	r.agent = agent.New(o)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.result <- r.agent.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

// next returns the next event of a type; others are skipped.
func next[E agent.Event](r *running) E {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-r.events:
			if wanted, ok := e.(E); ok {
				return wanted
			}
		case <-timeout:
			var want E
			r.t.Fatalf("no %T in %v", want, patience)
		}
	}
}

// remaining returns the events of a type that have come and were not read.
func remaining[E agent.Event](r *running) []E {
	var all []E
	for {
		select {
		case e := <-r.events:
			if wanted, ok := e.(E); ok {
				all = append(all, wanted)
			}
		default:
			return all
		}
	}
}

// end waits for Run's result.
func (r *running) end() error {
	r.t.Helper()
	select {
	case err := <-r.result:
		return err
	case <-time.After(patience):
		r.t.Fatal("the agent did not end")
		return nil
	}
}

// receive takes one value from a channel.
func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s in %v", what, patience)
		panic("unreachable")
	}
}

// observerFunc is an agent.Observer that calls a function.
type observerFunc func(agent.Event)

func (f observerFunc) Observe(e agent.Event) { f(e) }
