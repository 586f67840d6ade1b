// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const testTimeout = time.Minute

// testService is a Server with a store, reached over TLS.
type testService struct {
	*Server
	t         *testing.T
	store     *store.Store
	accountID string
	tokenID   string
	token     string
	tls       *tls.Config // of clients
	addr      string
	paused    bool // nothing runs in the background
}

func newTestService(t *testing.T, acl ...string) *testService {
	t.Helper()
	dir := t.TempDir()
	key, err := seal.ReadOrCreate(filepath.Join(dir, "secret.key"))
	must.Succeed(t, err)
	st, err := store.Open(t.Context(), store.Options{DataDir: dir, Key: key})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = st.Close() })
	l := &testService{t: t, store: st}
	a, err := st.CreateAccount(t.Context(), "first")
	must.Succeed(t, err)
	token, secret, err := st.IssueAuthtoken(t.Context(), a.ID, "", acl)
	must.Succeed(t, err)
	l.accountID, l.tokenID, l.token = a.ID, token.ID, secret
	l.Server = New(Options{
		Store: st, StoreID: st.StoreID(),
		ServerID: "test", Version: "test",
		Edge: noEdge{}, Meter: noMeter{},
		Logger: slog.New(slog.DiscardHandler),
	})
	l.listen()
	return l
}

// noEdge is an Edge that leaves streams as they are.
type noEdge struct{}

func (noEdge) ServeStream(context.Context, Incoming) {}
func (noEdge) EndpointBound(*account.Endpoint) (listenerURL, unreachable string) {
	return "", ""
}

// noMeter is a Meter that counts nothing.
type noMeter struct{}

func (noMeter) CountHello(tunnel.Role, string) {}
func (noMeter) CountBind(string)               {}
func (noMeter) CountIncomingStream(string)     {}

// fakeReplicas are the servers with one store, as a test has them.
type fakeReplicas struct {
	count         int
	publish       func(ctx context.Context, accountIDs, sessionIDs []string, code tunnel.Code, msg string)
	publishPolicy func(ctx context.Context, accountID string) // nil = nothing is done
}

func (r *fakeReplicas) Count() int { return r.count }

func (r *fakeReplicas) PublishSessions(ctx context.Context, c peers.Change) {
	r.publish(ctx, c.AccountIDs, c.IDs, c.Code, c.Message)
}

func (r *fakeReplicas) PublishPolicy(ctx context.Context, accountID string) {
	if r.publishPolicy != nil {
		r.publishPolicy(ctx, accountID)
	}
}

func (l *testService) listen() {
	https := httptest.NewTLSServer(nil) // lends its certificate for 127.0.0.1
	defer https.Close()
	roots := x509.NewCertPool()
	roots.AddCert(https.Certificate())
	l.tls = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	config := &tls.Config{Certificates: https.TLS.Certificates, NextProtos: []string{tunnel.ALPN},
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(l.t, err)
	l.addr = ln.Addr().String()
	tunnels := tunnel.NewServer(tunnel.ServerConfig{Handler: l.Server})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if !l.paused {
		running.Go(func() { l.Run(ctx) })
	}
	running.Go(func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				c := tls.Server(tunnel.TuneConn(raw), config)
				if c.HandshakeContext(ctx) == nil {
					_ = tunnels.ServeConn(ctx, c)
				}
				_ = c.Close()
			})
		}
	})
	l.t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		running.Wait()
		l.Wait()
	})
}

// agent is a session of an agent.
type agent struct {
	*tunnel.Session
	stop  func()
	ended <-chan error
}

// agent connects an agent, which accepts every stream and keeps it open.
func (l *testService) agent() *agent {
	l.t.Helper()
	return l.agentWith(tunnel.Hello{Role: tunnel.RoleAgent, Token: l.token})
}

// agentWith connects an agent with the hello.
func (l *testService) agentWith(hello tunnel.Hello) *agent {
	l.t.Helper()
	a := &agent{}
	client := tunnel.NewClient(tunnel.ClientConfig{
		Address: l.addr, TLS: l.tls, Connections: 1,
		Hello:    func() tunnel.Hello { return hello },
		OnStream: keepOpen,
	})
	a.run(l.t, client)
	return a
}

// keepOpen accepts a stream and keeps it open.
func keepOpen(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) {
	if st.Accept() == nil {
		<-ctx.Done()
	}
}

// run runs the agent's client until the test ends, and waits for its session.
func (a *agent) run(t *testing.T, client *tunnel.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		ended <- client.Run(ctx)
	}()
	a.stop, a.ended = func() { cancel(); <-done }, ended
	t.Cleanup(a.stop)
	up, end := context.WithTimeout(t.Context(), testTimeout)
	defer end()
	var err error
	a.Session, err = client.Wait(up)
	must.Succeed(t, err)
}

// tunnel binds a labelled tunnel.
func (l *testService) tunnel(a *agent, labels map[string]string, resume string) tunnel.Bound {
	l.t.Helper()
	bound, err := a.Bind(l.t.Context(), tunnel.Bind{Labels: labels, UpstreamURL: "tcp://localhost:1",
		ResumeSecret: resume})
	must.Succeed(l.t, err)
	return bound
}

func (l *testService) listed() []account.LabelledTunnel {
	l.t.Helper()
	page, _, err := l.store.ListLabelledTunnels(l.t.Context(), l.accountID, nil, account.Page{})
	must.Succeed(l.t, err)
	return page
}
