// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

func TestMain(m *testing.M) {
	// net/http gives a client that it has refused half a second to read why, even after the server is
	// closed: longer than goleak waits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience is how long a test waits for what has to happen at once.
const patience = 3 * time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %s", what, patience)
		panic("unreachable")
	}
}

// logBuffer collects a service's log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testServer is a whole service in this process.
type testServer struct {
	t         *testing.T
	opt       Options
	addrs     Addresses
	log       *logBuffer
	stop      context.CancelFunc
	forceStop chan struct{}
	finished  chan error

	apiKey, authtoken, operatorID string
}

// startServer runs a service on ports of its own. Its stop at the test's end must be orderly.
func startServer(t *testing.T, change ...func(*Options)) *testServer {
	t.Helper()
	r := &testServer{t: t, log: &logBuffer{}, forceStop: make(chan struct{}), finished: make(chan error, 1)}
	up := make(chan Addresses, 1)
	r.opt = Options{
		Addr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0", MetricsSeries: 2000, AccessLogSample: 1, BaseURL: "",
		DataDir:      filepath.Join(t.TempDir(), "data"),
		DrainTimeout: 10 * time.Second, EndpointGrace: 10 * time.Minute,
		Logger:    slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		ForceStop: r.forceStop, OnReady: func(a Addresses) { up <- a },
	}
	for _, f := range change {
		f(&r.opt)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.finished <- Run(ctx, r.opt)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("the service's log:\n%s", r.log)
		}
	})
	select {
	case r.addrs = <-up:
	case err := <-r.finished:
		t.Fatalf("the service did not start: %v", err)
	case <-time.After(patience):
		t.Fatal("the service did not come up")
	}
	r.readSecrets()
	return r
}

func (r *testServer) readSecrets() {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.opt.DataDir, BootstrapFileName))
	if err != nil {
		return // a test that bootstraps in its own way
	}
	r.apiKey = regexp.MustCompile(`flk_[\w-]+`).FindString(string(b))
	r.authtoken = regexp.MustCompile(`flt_[\w-]+`).FindString(string(b))
}

// openStore opens the store beside the running service, as the commands do.
func (r *testServer) openStore() *store.Store {
	r.t.Helper()
	st, err := store.Open(testContext(r.t), store.Options{DataDir: r.opt.DataDir, DatabaseURL: r.opt.DatabaseURL})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = st.Close() })
	return st
}

// callAPI calls the account API and returns the status; out may be nil.
func (r *testServer) callAPI(method, path string, in, out any) int {
	r.t.Helper()
	tlsConfig, err := trust.Options{CASHA256: r.addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		r.t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			r.t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(testContext(r.t), method, "https://"+r.addrs.Service.String()+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.apiKey)
	req.Header.Set("Service-Version", "2")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	if out != nil {
		if err := json.NewDecoder(res.Body).Decode(out); err != nil {
			r.t.Fatal(err)
		}
	}
	return res.StatusCode
}

// runTunnelClient runs a tunnel client until the test ends; ended gets what Run returned.
func (r *testServer) runTunnelClient(cfg tunnel.ClientConfig) (c *tunnel.Client, stop func(), ended <-chan error) {
	r.t.Helper()
	tlsConfig, err := trust.Options{CASHA256: r.addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		r.t.Fatal(err)
	}
	cfg.Address, cfg.TLS, cfg.MaxBackoff = r.addrs.Service.String(), tlsConfig, 300*time.Millisecond
	c = tunnel.NewClient(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	result, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		result <- c.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	r.t.Cleanup(stop)
	return c, stop, result
}

// testAgent is what internal/agent will be, as small as it can be.
type testAgent struct {
	*tunnel.Client
	stop  func()
	ended <-chan error
	bound chan tunnel.Bound
	lines chan tunnel.RequestLine
}

// startAgent binds one endpoint and serves its streams to the upstream's address.
func (r *testServer) startAgent(b tunnel.Bind, upstream string) *testAgent {
	return r.startAgentWith(r.authtoken, b, relayTo(upstream))
}

func relayTo(upstream string) func(context.Context, *tunnel.Stream) {
	return func(ctx context.Context, st *tunnel.Stream) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", upstream)
		if err != nil {
			_ = st.Refuse(tunnel.RefusedUpstream)
			return
		}
		if err := st.Accept(); err != nil {
			_ = conn.Close()
			return
		}
		_, _ = relay.Join(ctx, st, conn.(*net.TCPConn), relay.Options{})
	}
}

func (r *testServer) startAgentWith(
	token string, b tunnel.Bind, serve func(context.Context, *tunnel.Stream), change ...func(*tunnel.ClientConfig),
) *testAgent {
	r.t.Helper()
	a := &testAgent{bound: make(chan tunnel.Bound, 16), lines: make(chan tunnel.RequestLine, 256)}
	var mu sync.Mutex
	resume := b.ResumeSecret
	cfg := tunnel.ClientConfig{
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: token, ClientVersion: "0.0.0-test", OS: "linux",
				InstanceID: "test"}
		},
		OnUp: func(ctx context.Context, s *tunnel.Session) error {
			mu.Lock()
			defer mu.Unlock()
			b := b
			b.ResumeSecret = resume
			got, err := s.Bind(ctx, b)
			if err != nil {
				return err
			}
			resume = got.ResumeSecret
			a.bound <- got
			return nil
		},
		OnStream: func(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) { serve(ctx, st) },
		OnRequestLine: func(l tunnel.RequestLine) {
			select {
			case a.lines <- l:
			default:
			}
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	a.Client, a.stop, a.ended = r.runTunnelClient(cfg)
	return a
}

// readAll reads a body to its end.
func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// serveTCP serves each connection to a port of its own.
func serveTCP(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

// allowLoopback allows static backends on the loopback interface.
func allowLoopback(o *Options) { o.StaticAllow = []string{"127.0.0.0/8"} }
