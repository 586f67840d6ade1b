// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/pipelistener"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// bubble is a forwarder without network, for tests of time. It has no operator id, so it never
// dials.
type bubble struct {
	*forwarder
	source *fakeSource
	ln     *pipelistener.Listener
	serve  func(forward.Connection)
	stop   context.CancelFunc
	done   chan error
	logged bytes.Buffer // complete once done
}

func startInBubble(t *testing.T, drain time.Duration) *bubble {
	t.Helper()
	b := &bubble{source: newFakeSource(), ln: pipelistener.New(), done: make(chan error, 1)}
	b.serve = func(c forward.Connection) { _ = c.Close() }
	token := filepath.Join(t.TempDir(), "authtoken")
	if err := os.WriteFile(token, []byte("flt_x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	b.forwarder, err = newForwarder(Options{
		EdgeAddress: "edge.invalid:1", TLS: &tls.Config{}, AuthtokenFile: token, InstanceID: "pod-1",
		PodIPs: []netip.Addr{netip.MustParseAddr("10.0.0.7")}, Source: b.source, DrainTimeout: drain,
		Logger: slog.New(slog.NewTextHandler(&b.logged, nil)),
	}, defaultTiming())
	if err != nil {
		t.Fatal(err)
	}
	b.listeners.listen = func(context.Context, int) (net.Listener, error) { return b.ln, nil }
	b.listeners.relayConn = func(c forward.Connection, _ *portAssignment, _ *portStats) { b.serve(c) }
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() { b.done <- b.run(ctx) }()
	return b
}

func (b *bubble) readyz() int {
	w := httptest.NewRecorder()
	b.healthHandler().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	return w.Code
}

// connect reports whether a new connection is accepted.
func (b *bubble) connect() bool {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	return b.ln.Offer(pipeConn{ours})
}

func tcpObjects() Objects {
	o := testObjects()
	o.OperatorID, o.BoundEndpoints = "", o.BoundEndpoints[1:]
	return o
}

func TestReady_WithoutEdgeAfterTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 0)
		time.Sleep(time.Hour)
		if b.readyz() != 503 {
			t.Error("ready before the BoundEndpoints were listed")
		}
		b.source.update(tcpObjects())
		time.Sleep(20*time.Second - time.Millisecond)
		if b.readyz() != 503 {
			t.Error("ready without a session before 20 s of trying")
		}
		time.Sleep(2 * time.Millisecond)
		if b.readyz() != 200 {
			t.Error("not ready after 20 s of trying")
		}
		time.Sleep(2 * time.Hour)
		if b.readyz() != 200 {
			t.Error("unready again because of the edge")
		}
		b.stop()
		if err := <-b.done; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdown_Order(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 15*time.Minute)
		b.source.update(tcpObjects())
		time.Sleep(time.Minute)
		release := make(chan struct{})
		b.serve = func(c forward.Connection) { <-release; _ = c.Close() }
		if !b.connect() {
			t.Fatal("not accepting")
		}
		var asks atomic.Int32
		asked := time.Now()
		b.source.listed = func() (bool, error) {
			asks.Add(1)
			return time.Since(asked) < 7*time.Second, nil
		}
		b.stop() // SIGTERM
		time.Sleep(17 * time.Second)
		// Unlisted at the poll of 8 s, then 10 s more.
		if b.readyz() != 200 || !b.connect() {
			t.Errorf("after 17 s: readyz %d; want 200 and accepting", b.readyz())
		}
		if n := asks.Load(); n != 5 {
			t.Errorf("read the EndpointSlices %d times in 8 s, want 5", n)
		}
		time.Sleep(1100 * time.Millisecond)
		if b.connect() {
			t.Error("still accepting after the EndpointSlices were right for 10 s")
		}
		time.Sleep(14 * time.Minute)
		select {
		case err := <-b.done:
			t.Fatalf("ended with connections alive: %v", err)
		default:
		}
		if b.readyz() != 200 {
			t.Error("unready while draining")
		}
		close(release)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
	})
}

// after returns a function that reports the pod as listed until d after its first call.
func after(d time.Duration) func() (bool, error) {
	var first time.Time
	return func() (bool, error) {
		if first.IsZero() {
			first = time.Now()
		}
		return time.Since(first) < d, nil
	}
}

func TestShutdown_Timeouts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		listed func() (bool, error)
		accept time.Duration // how long connections are taken
		drain  time.Duration // how long they may go on
	}{
		"EndpointSlices cannot be read": {func() (bool, error) {
			return false, errors.New("forbidden")
		}, 40 * time.Second, 5 * time.Minute},
		"EndpointSlices are never right": {func() (bool, error) {
			return true, nil
		}, DeregistrationTimeout + 5*time.Minute, 0},
		"EndpointSlices are right at once": {func() (bool, error) {
			return false, nil
		}, 10 * time.Second, 5 * time.Minute},
		"a thousand EndpointSlices": {after(100 * time.Second), 110 * time.Second, 5 * time.Minute},
		"thousands of EndpointSlices": {after(7 * time.Minute), 7*time.Minute + 10*time.Second,
			DeregistrationTimeout - 2*time.Minute - 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := startInBubble(t, 5*time.Minute)
				b.source.listed = tt.listed
				b.source.update(tcpObjects())
				cut := make(chan struct{})
				b.serve = func(c forward.Connection) { // never ends by itself
					<-b.connCtx.Done()
					close(cut)
					_ = c.Close()
				}
				b.connect()
				begun := time.Now()
				b.stop()
				<-b.ln.Closed()
				if took := time.Since(begun); took != tt.accept {
					t.Errorf("accepted for %s, want %s", took, tt.accept)
				}
				<-cut
				if took := time.Since(begun); took != tt.accept+tt.drain {
					t.Errorf("connections cut after %s, want %s", took, tt.accept+tt.drain)
				}
				if err := <-b.done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestShutdown_DrainsSessionAndContinuesToServe(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	var gone atomic.Bool
	r.source.listed = func() (bool, error) { return !gone.Load(), nil }
	session := wait.Receive(t, "the edge's session", e.up)
	r.stop()
	wait.Receive(t, "DRAIN", session.PeerDraining())
	if res, _ := get(t, r.dial(10080), "/late"); res.StatusCode != 200 {
		t.Errorf("a connection while leaving got %s", res.Status)
	}
	_ = session.Close() // the server restarts meanwhile: the next session must know as well
	next := wait.Receive(t, "the next session", e.up)
	wait.Receive(t, "DRAIN on the next session", next.PeerDraining())
	gone.Store(true)
	if err := wait.Receive(t, "the forwarder's end", r.done); err != nil {
		t.Error(err)
	}
}

func TestEdgeClient_ReadsTokenForEverySession(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	next := func(want string) *tunnel.Session {
		t.Helper()
		if h := wait.Receive(t, "a hello", e.hellos); h.Token != want {
			t.Errorf("token %q, want %q", h.Token, want)
		}
		return wait.Receive(t, "a session", e.up)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(r.token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := next("flt_first")
	write("flt_second\n")
	_ = first.Close()
	second := next("flt_second")
	write("") // half of a rotation: the good token must not be lost
	_ = second.Close()
	next("flt_second")
}

func TestEdgeClient_RetriesRefusedToken(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	e.setRefuse(&tunnel.Error{Code: tunnel.CodeBadToken, Msg: "unknown authtoken", Detail: "ERR_FL_1002"})
	r := start(t, e, shortTiming())
	r.source.update(testObjects())
	wait.Receive(t, "the first hello", e.hellos)
	wait.Until(t, "the reason in the status", func() bool {
		return strings.Contains(r.status().Session.Error, "unknown authtoken")
	})
	e.setRefuse(nil)
	wait.Receive(t, "a session once the token is good", r.edge.connectedOnce)
	wait.Until(t, "a clean status", func() bool {
		s := r.status().Session
		return s.Up && s.Error == "" && s.AccountID == "ac-1"
	})
	if res, _ := get(t, r.dial(10080), "/"); res.StatusCode != 200 {
		t.Errorf("got %s", res.Status)
	}
}

func TestEdgeClient_ReconnectsForNewOperatorID(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	wait.Receive(t, "the first hello", e.hellos)
	wait.Receive(t, "the first session", e.up)
	wait.Until(t, "the forwarder's session", func() bool { return r.edge.Live() != nil })
	o := testObjects()
	o.OperatorID = "ko-2"
	r.source.update(o)
	if h := wait.Receive(t, "the second hello", e.hellos); h.OperatorID != "ko-2" {
		t.Errorf("hello as %s", h.OperatorID)
	}
	o.OperatorID = "" // the object was deleted by hand: what was known stays
	r.source.update(o)
	if got := r.status().Session.OperatorID; got != "ko-2" {
		t.Errorf("operator id %q", got)
	}
}

func TestServers_HealthStatusMetrics(t *testing.T) {
	t.Parallel()
	r := connected(t, startEdge(t, respond), shortTiming())
	server := httptest.NewServer(r.healthHandler())
	defer server.Close()
	wait.Until(t, "readiness", r.ready.Load)
	for _, path := range []string{"/healthz", "/readyz", "/status" + statusQuery} {
		res, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
		var st Status
		if strings.HasPrefix(path, "/status") && (json.Unmarshal(body, &st) != nil || len(st.Listeners) != 2 ||
			st.Listeners[0].Endpoint != "ep-http" || !st.Ready) {
			t.Errorf("status %s", body)
		}
	}
	_, _ = get(t, r.dial(10080), "/")
	count := func() int {
		n, _ := testutil.GatherAndCount(r.metrics.registry, "fairlead_forwarder_connections_total")
		return n
	}
	if count() != 2 {
		t.Errorf("%d hostnames counted, want 2", count())
	}
	r.source.update(Objects{})
	if count() != 0 {
		t.Errorf("%d hostnames counted after all have gone", count())
	}
}

func TestServers_PortInUseIsAnError(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f, err := newForwarder(Options{
		EdgeAddress: "127.0.0.1:1", TLS: &tls.Config{}, AuthtokenFile: "none", Source: newFakeSource(),
		ListenOptions: ListenOptions{MetricsAddr: taken.Addr().String(), HealthAddr: "127.0.0.1:0"},
	}, shortTiming())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.run(t.Context()); err == nil || !strings.Contains(err.Error(), "metrics") {
		t.Errorf("got %v", err)
	}
}

func TestOptions_Invalid(t *testing.T) {
	t.Parallel()
	good := Options{EdgeAddress: "edge:443", TLS: &tls.Config{}, AuthtokenFile: "f", Source: newFakeSource()}
	for name, tt := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no port":        {func(o *Options) { o.EdgeAddress = "edge" }, `edge address "edge"`},
		"no TLS":         {func(o *Options) { o.TLS = nil }, "TLS"},
		"no token file":  {func(o *Options) { o.AuthtokenFile = "" }, "authtoken"},
		"two tokens":     {func(o *Options) { o.ServiceAccountTokenFile = "f" }, "either"},
		"negative drain": {func(o *Options) { o.DrainTimeout = -1 }, "drain timeout"},
		"no source":      {func(o *Options) { o.Source = nil }, "source"},
	} {
		o := good
		tt.change(&o)
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
