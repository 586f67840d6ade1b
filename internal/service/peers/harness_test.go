// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ edge.Agent = (*Member)(nil)

const testAccount = "ac-1"

// testRegistry is the registry of a test's replicas.
type testRegistry struct {
	mu    sync.Mutex
	rows  map[string]Replica
	err   error
	reads int
}

// Replicas implements Registry.
func (g *testRegistry) Replicas(context.Context) ([]Replica, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads++
	var all []Replica
	for _, r := range g.rows {
		all = append(all, r)
	}
	return all, g.err
}

func (g *testRegistry) add(id, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rows[id] = Replica{ID: id, RelayAddress: address, Version: "v1"}
}

func (g *testRegistry) remove(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.rows, id)
}

func (g *testRegistry) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// testCluster is a registry with replicas on loopback.
type testCluster struct {
	testing.TB
	registry *testRegistry
	lease    time.Duration
}

func newCluster(tb testing.TB) *testCluster {
	return &testCluster{TB: tb, registry: &testRegistry{rows: make(map[string]Replica)}, lease: 15 * time.Second}
}

// testReplica is a replica that runs until the test ends or stop is called.
type testReplica struct {
	*Peers
	local *testLocal
	addr  string
	stop  func()
}

func secret(tb testing.TB, fill byte) *seal.Key {
	tb.Helper()
	k, err := seal.New(bytes.Repeat([]byte{fill}, seal.KeySize))
	must.Succeed(tb, err)
	return k
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(tb, err)
	return l
}

// start starts a replica that has a row in the registry.
func (c *testCluster) start(id string) *testReplica {
	c.Helper()
	l := listen(c)
	c.registry.add(id, l.Addr().String())
	return c.startOn(l, Options{ID: id, Key: secret(c, 1)})
}

// startOn starts a replica with options of the test's.
func (c *testCluster) startOn(l net.Listener, opt Options) *testReplica {
	c.Helper()
	local := &testLocal{members: make(map[string]*testMember), lines: make(chan tunnel.RequestLine, 100)}
	opt.Registry, opt.Lease, opt.Local = c.registry, c.lease, local
	p, err := New(opt)
	must.Succeed(c, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	running.Go(func() {
		if err := p.Serve(ctx, l); err != nil {
			c.Errorf("serving: %v", err)
		}
	})
	r := &testReplica{Peers: p, local: local, addr: l.Addr().String(), stop: sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})}
	c.Cleanup(r.stop)
	return r
}

// pair starts two replicas: the second has an agent with this endpoint.
func (c *testCluster) pair(serve func(*tunnel.Stream)) (asks, holds *testReplica) {
	c.Helper()
	asks, holds = c.start("rp-1"), c.start("rp-2")
	holds.local.add(testHolder("ep-1"), agentSession(c, serve))
	c.linked(asks, holds)
	return asks, holds
}

// testMember is an endpoint of an agent.
type testMember struct {
	holder  Holder
	session *tunnel.Session // nil: its streams are refused
	err     error           // of OpenMember
}

// testLocal has members and records what it is told.
type testLocal struct {
	mu      sync.Mutex
	members map[string]*testMember
	asked   int
	headers []tunnel.OpenHeader
	applied []Change
	apply   func(context.Context, Change) error
	holders func() // called by Holders
	lines   chan tunnel.RequestLine
	open    atomic.Int32 // streams of OpenMember that were not released
}

func (l *testLocal) add(h Holder, s *tunnel.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members[h.Endpoint.ID] = &testMember{holder: h, session: s}
}

func (l *testLocal) set(id string, change func(*testMember)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.members[id])
}

func (l *testLocal) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, id)
}

func (l *testLocal) questions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

func (l *testLocal) changes() []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.applied)
}

func (l *testLocal) Holders(q Query) []Holder {
	l.mu.Lock()
	l.asked++
	var all []Holder
	for _, m := range l.members {
		ep := m.holder.Endpoint
		if (q.AccountID == "" || q.AccountID == ep.AccountID) && q.Host == ep.Host && q.Port == ep.Port {
			all = append(all, m.holder)
		}
	}
	called := l.holders
	l.mu.Unlock()
	if called != nil {
		called()
	}
	return all
}

func (l *testLocal) OpenMember(
	ctx context.Context, accountID, id string, h tunnel.OpenHeader,
) (*tunnel.Stream, func(), error) {
	l.mu.Lock()
	l.headers = append(l.headers, h)
	m := l.members[id]
	l.mu.Unlock()
	switch {
	case m == nil || m.holder.Endpoint.AccountID != accountID:
		return nil, nil, ErrOffline(id, nil)
	case m.err != nil:
		return nil, nil, m.err
	}
	st, err := m.session.Open(ctx, h)
	l.open.Add(1)
	return st, func() { l.open.Add(-1) }, err
}

func (l *testLocal) StoreAge() time.Duration { return time.Minute }

func (l *testLocal) ReportLine(accountID string, line tunnel.RequestLine) {
	line.Code = accountID
	l.lines <- line
}

func (l *testLocal) Apply(ctx context.Context, c Change) error {
	if l.apply != nil {
		if err := l.apply(ctx, c); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applied = append(l.applied, c)
	return nil
}

func testHolder(id string) Holder {
	return Holder{Asked: time.Unix(1, 5).UTC(), Endpoint: account.Endpoint{ID: id, AccountID: testAccount,
		Scheme: "http", Host: "api.demo", Port: 80, Bindings: []string{account.BindingInternal},
		TrafficPolicy: "on_http_request: []"}}
}

func testQuery() Query {
	return Query{Pool: Pool{testAccount, account.BindingInternal, "http", "api.demo", 80}}
}

// choose chooses a member and fails the test when there is none.
func (r *testReplica) choose(tb testing.TB) *Member {
	tb.Helper()
	m, err := r.Choose(tb.Context(), testQuery(), nil)
	if err != nil {
		tb.Fatalf("choosing: %v", err)
	}
	tb.Cleanup(m.Release)
	return m
}

// open opens a stream to an agent and fails the test when it cannot.
func open(tb testing.TB, m *Member) *tunnel.Stream {
	tb.Helper()
	st, err := m.Open(tb.Context(), tunnel.OpenHeader{EndpointID: m.Endpoint().ID, Host: "api.demo", Port: 80})
	if err != nil {
		tb.Fatalf("opening: %v", err)
	}
	tb.Cleanup(func() { _ = st.Close() })
	return st
}

// agents is the server's side of agents.
type agents struct {
	relayHandler
	ups chan *tunnel.Session
}

func (a agents) Hello(context.Context, tunnel.Hello, net.Addr) (tunnel.Welcome, error) {
	return tunnel.Welcome{SessionID: account.NewID(account.PrefixTunnelSession, time.Now())}, nil
}

func (a agents) Up(s *tunnel.Session) { a.ups <- s }

// agentSession returns the server's session with an agent that serves streams with serve.
func agentSession(tb testing.TB, serve func(*tunnel.Stream)) *tunnel.Session {
	tb.Helper()
	return agentSessionOver(tb, serve, func(c net.Conn) net.Conn { return c })
}

func agentSessionOver(tb testing.TB, serve func(*tunnel.Stream), wrap func(net.Conn) net.Conn) *tunnel.Session {
	tb.Helper()
	authority, err := newAuthority(secret(tb, 9))
	must.Succeed(tb, err)
	who := &identity{authority: authority, id: "server"}
	handler := agents{ups: make(chan *tunnel.Session, 1)}
	server := tunnel.NewServer(tunnel.ServerConfig{Handler: handler})
	config := who.serverTLS(func(string) error { return nil })
	config.NextProtos = []string{tunnel.ALPN}
	l := listen(tb)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				conn := tls.Server(tunnel.TuneConn(c), config)
				if conn.HandshakeContext(ctx) == nil {
					_ = server.ServeConn(ctx, conn)
				}
				_ = c.Close()
			})
		}
	})
	client := tunnel.NewClient(tunnel.ClientConfig{Address: l.Addr().String(), TLS: who.clientTLS("server"),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return wrap(c), nil
		},
		Hello:    func() tunnel.Hello { return tunnel.Hello{Role: tunnel.RoleAgent} },
		OnStream: func(_ context.Context, _ *tunnel.Session, st *tunnel.Stream) { serve(st) }})
	running.Go(func() { _ = client.Run(ctx) })
	tb.Cleanup(func() {
		cancel()
		_ = l.Close()
		running.Wait()
	})
	return wait.Receive(tb, "the agent's session", handler.ups)
}

// echo sends back what it reads and half-closes at the end.
func echo(st *tunnel.Stream) {
	if st.Accept() != nil {
		return
	}
	if _, err := io.Copy(struct{ io.Writer }{st}, struct{ io.Reader }{st}); err == nil {
		_ = st.CloseWrite()
	}
}

func send(tb testing.TB, w io.Writer, text string) {
	tb.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		tb.Fatal(err)
	}
}

func codeOf(err error) string {
	var refused *tunnel.RefusedError
	if errors.As(err, &refused) {
		return fmt.Sprint("refused: ", refused.Code)
	}
	return string(account.CodeOf(err))
}
