// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/statustoken"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait of a test; only a failing test waits that long.
const testTimeout = 20 * time.Second

// fakeEdge is a real tunnel server whose stream handler the test sets.
type fakeEdge struct {
	t       testing.TB
	addr    string
	ln      net.Listener
	server  *tunnel.Server
	dial    func(ctx context.Context, network, address string) (net.Conn, error) // of its forwarders; nil = to addr
	roots   *x509.CertPool
	hellos  chan tunnel.Hello    // of every session
	up      chan *tunnel.Session // every session
	streams chan tunnel.OpenHeader
	// tokens of sessions that were renewed
	renewals chan string

	mu     sync.Mutex
	handle func(ctx context.Context, st *tunnel.Stream)
	refuse *tunnel.Error // answers hellos with it
	// of the welcome: the id of this replica and how many there are
	replica  string
	replicas int
	wrap     func(net.Conn) net.Conn   // wrap changes accepted connections; nil = none does.
	spares   chan func(*tunnel.Stream) // spares serve one spare each; further ones are refused.
}

func startEdge(t testing.TB, handle func(ctx context.Context, st *tunnel.Stream)) *fakeEdge {
	t.Helper()
	return startEdgeAt(t, "127.0.0.1:0", handle)
}

func startEdgeAt(t testing.TB, addr string, handle func(ctx context.Context, st *tunnel.Stream)) *fakeEdge {
	t.Helper()
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	e := &fakeEdge{spares: make(chan func(*tunnel.Stream), 10),
		t: t, handle: handle, roots: x509.NewCertPool(),
		hellos: make(chan tunnel.Hello, 100), up: make(chan *tunnel.Session, 100),
		streams: make(chan tunnel.OpenHeader, 5000), renewals: make(chan string, 100),
	}
	e.roots.AddCert(certificate.Certificate())
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	e.addr = ln.Addr().String()
	config := &tls.Config{
		Certificates: certificate.TLS.Certificates, MinVersion: tls.VersionTLS13, NextProtos: []string{tunnel.ALPN},
		DynamicRecordSizingDisabled: true,
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := tunnel.NewServer(tunnel.ServerConfig{Handler: e, Logger: slog.New(slog.DiscardHandler)})
	e.ln, e.server = ln, server
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer raw.Close()
				c := tls.Server(tunnel.TuneConn(e.wrapped(raw)), config)
				if c.HandshakeContext(ctx) == nil {
					_ = server.ServeConn(ctx, c)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		for _, s := range server.Sessions() {
			_ = s.Close()
		}
		cancel()
		serving.Wait()
	})
	return e
}

func (e *fakeEdge) setHandle(h func(ctx context.Context, st *tunnel.Stream)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handle = h
}

func (e *fakeEdge) setWrap(wrap func(net.Conn) net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrap = wrap
}

func (e *fakeEdge) wrapped(c net.Conn) net.Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wrap == nil {
		return c
	}
	return e.wrap(c)
}

func (e *fakeEdge) setRefuse(err *tunnel.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = err
}

func (e *fakeEdge) Hello(_ context.Context, h tunnel.Hello, _ net.Addr) (tunnel.Welcome, error) {
	e.hellos <- h
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return tunnel.Welcome{}, e.refuse
	}
	return tunnel.Welcome{SessionID: "se-" + strconv.FormatInt(time.Now().UnixNano(), 36), AccountID: "ac-1",
		ReplicaID: e.replica, Replicas: e.replicas}, nil
}

// Join admits every session if there are replicas.
func (e *fakeEdge) Join(_ context.Context, h tunnel.Hello, _ net.Addr) (tunnel.Welcome, error) {
	if e.replica == "" {
		return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeUnknownSession,
			Msg: "the session has ended: begin a new one"}
	}
	return tunnel.Welcome{SessionID: h.SessionID, AccountID: "ac-1", ReplicaID: e.replica, Replicas: e.replicas}, nil
}

func (e *fakeEdge) Up(s *tunnel.Session) { e.up <- s }

func (e *fakeEdge) Bind(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
	return tunnel.Bound{}, errors.New("a forwarder binds nothing")
}

func (e *fakeEdge) Unbind(context.Context, *tunnel.Session, string) error {
	return errors.New("a forwarder binds nothing")
}

func (e *fakeEdge) Renew(_ context.Context, _ *tunnel.Session, token string) (time.Time, error) {
	e.renewals <- token
	return time.Now().Add(time.Hour), nil
}

func (e *fakeEdge) Stream(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) {
	if h := st.Header(); h.IsSpare() {
		select {
		case serve := <-e.spares:
			serve(st)
		default:
			_ = st.Refuse(tunnel.RefusedNotSealed)
		}
		return
	}
	e.streams <- st.Header()
	e.mu.Lock()
	handle := e.handle
	e.mu.Unlock()
	handle(ctx, st)
}

func (e *fakeEdge) OnResponsiveness(*tunnel.Session) {}

func (e *fakeEdge) OnRequestLine(*tunnel.Session, tunnel.RequestLine) {}

func (e *fakeEdge) Down(*tunnel.Session, error) {}

// fakeSource is a Source that the test controls.
type fakeSource struct {
	updates chan Objects
	applied chan struct{}
	listed  func() (bool, error)

	mu      sync.Mutex
	deleted func(context.Context) (bool, error)
}

func newFakeSource() *fakeSource {
	return &fakeSource{
		updates: make(chan Objects), applied: make(chan struct{}),
		listed:  func() (bool, error) { return false, nil },
		deleted: func(context.Context) (bool, error) { return false, nil },
	}
}

func (s *fakeSource) Watch(ctx context.Context, update func(Objects)) error {
	for {
		select {
		case o := <-s.updates:
			update(o)
			s.applied <- struct{}{}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *fakeSource) InEndpointSlices(context.Context, []netip.Addr) (bool, error) { return s.listed() }

func (s *fakeSource) NamespaceDeleted(ctx context.Context) (bool, error) {
	s.mu.Lock()
	removed := s.deleted
	s.mu.Unlock()
	return removed(ctx)
}

func (s *fakeSource) setDeleted(removed func(context.Context) (bool, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = removed
}

// update passes the objects to the forwarder; it returns after the forwarder has applied them.
func (s *fakeSource) update(o Objects) {
	s.updates <- o
	<-s.applied
}

// runningForwarder is a forwarder under test.
type runningForwarder struct {
	*forwarder
	t      testing.TB
	source *fakeSource
	stop   context.CancelFunc // SIGTERM
	done   chan error
	ports  sync.Map // targetPort -> address
	token  string   // file
}

// shortTiming shortens the durations that tests need not wait for.
func shortTiming() timing {
	t := defaultTiming()
	t.slicePoll, t.kubeProxyDelay, t.edgeRetry = time.Millisecond, time.Millisecond, 10*time.Millisecond
	return t
}

// start runs a forwarder with a session to the edge. It listens on free loopback ports, see dial.
func start(t testing.TB, e *fakeEdge, timing timing, configure ...func(*Options)) *runningForwarder {
	t.Helper()
	r := &runningForwarder{t: t, source: newFakeSource(), done: make(chan error, 1),
		token: filepath.Join(t.TempDir(), "authtoken")}
	if err := os.WriteFile(r.token, []byte("flt_first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{
		EdgeAddress: e.addr, TLS: &tls.Config{RootCAs: e.roots}, Dial: e.dial, AuthtokenFile: r.token,
		InstanceID: "pod-1",
		PodIPs:     []netip.Addr{netip.MustParseAddr("10.0.0.7")}, Source: r.source,
	}
	for _, c := range configure {
		c(&o)
	}
	f, err := newForwarder(o, timing)
	if err != nil {
		t.Fatal(err)
	}
	r.forwarder = f
	f.listeners.listen = func(ctx context.Context, port int) (net.Listener, error) {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err == nil {
			r.ports.Store(port, ln.Addr().String())
		}
		return ln, err
	}
	r.run()
	return r
}

func (r *runningForwarder) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- r.forwarder.run(ctx)
	}()
	r.t.Cleanup(func() {
		cancel()
		wait.Receive(r.t, "the forwarder's end", ended)
	})
}

// addr returns the address on which the listener of a target port really listens.
func (r *runningForwarder) addr(port int) string {
	r.t.Helper()
	addr, ok := r.ports.Load(port)
	if !ok {
		r.t.Fatalf("no listener for target port %d", port)
	}
	return addr.(string)
}

// dial connects to the listener of a target port.
func (r *runningForwarder) dial(port int) *net.TCPConn {
	r.t.Helper()
	return dial(r.t, r.addr(port))
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	return c.(*net.TCPConn)
}

// bep returns a BoundEndpoint of one port with one endpoint, or with none if id is empty.
func bep(host, namespace, scheme string, port, targetPort int32, id string) *v1alpha1.BoundEndpoint {
	b := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Name: host + "." + namespace,
		CreationTimestamp: metav1.Unix(1_800_000_000, 0)}}
	b.Spec = v1alpha1.BoundEndpointSpec{
		Service: host, Namespace: namespace, ProjectionID: "ep-projection", State: v1alpha1.StateBound,
		Ports: []v1alpha1.BoundPort{{Port: port, Scheme: scheme, TargetPort: targetPort}},
	}
	if id != "" {
		url := scheme + "://" + host + "." + namespace + ":" + strconv.Itoa(int(port))
		b.Spec.Endpoints = []v1alpha1.EndpointRef{{ID: id, URL: url}}
	}
	return b
}

// exportedBy makes b that of a Service which the cluster exports.
func exportedBy(b *v1alpha1.BoundEndpoint, cluster string) *v1alpha1.BoundEndpoint {
	b.Name += "." + cluster
	b.Spec.Cluster = cluster
	for i, ref := range b.Spec.Endpoints {
		b.Spec.Endpoints[i].URL = strings.Replace(ref.URL, b.Spec.Namespace+":", b.Spec.Namespace+"."+cluster+":", 1)
	}
	return b
}

// operatorUID is the UID of the test's KubernetesOperator; statusQuery is the token for the status
// of pod-1.
const operatorUID = "0a7e1c1e-8f0c-4a43-9d2f-4f6f3f0b7d11"

var statusQuery = "?" + statustoken.Parameter + "=" + statustoken.Derive(operatorUID, "pod-1")

// testObjects returns one http and one tcp endpoint, and a registered operator.
func testObjects() Objects {
	return Objects{OperatorID: "ko-1", OperatorUID: operatorUID, BoundEndpoints: []*v1alpha1.BoundEndpoint{
		bep("api", "demo", "http", 80, 10080, "ep-http"), bep("db", "demo", "tcp", 5432, 15432, "ep-tcp"),
	}}
}

// connected starts a forwarder with testObjects and waits for its session.
func connected(t *testing.T, e *fakeEdge, timing timing) *runningForwarder {
	t.Helper()
	r := start(t, e, timing)
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	return r
}

// neverAnswer never answers.
func neverAnswer(ctx context.Context, st *tunnel.Stream) {
	<-ctx.Done()
	_ = st.Abort()
}

func refuseWith(code tunnel.RefuseCode) func(context.Context, *tunnel.Stream) {
	return func(_ context.Context, st *tunnel.Stream) { _ = st.Refuse(code) }
}
