// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const testTimeout = 3 * time.Minute

// testServer serves handlers for sessions, which a request names in its header.
type testServer struct {
	t        *testing.T
	registry *Registry
	url      string
	http     *http.Client
	ended    chan error // why the context of a request of session "victim" ended, when its handler has returned
}

type connKey struct{}

func newTestServer(t *testing.T, http2 bool, serve http.HandlerFunc) *testServer {
	t.Helper()
	w := &testServer{t: t, registry: New(nil), ended: make(chan error, 1)}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var sever Aborter
		if c := r.Context().Value(connKey{}).(*tls.Conn); r.ProtoMajor == 1 {
			sever = abortFunc(func() {
				_ = c.NetConn().(*net.TCPConn).SetLinger(0)
				_ = c.NetConn().Close()
			})
		}
		session := r.Header.Get("Session")
		guarded, r, cut := Abortable(rw, r, sever, nil)
		if session == "victim" {
			defer func() { w.ended <- context.Cause(r.Context()) }()
		}
		e := w.registry.Register(cut)
		defer e.Done()
		if !e.SetSession(session) {
			t.Error("SetSession failed before an abort")
		}
		serve(guarded, r)
	}))
	srv.EnableHTTP2 = http2
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	w.url, w.http = srv.URL, srv.Client()
	t.Cleanup(w.http.CloseIdleConnections)
	return w
}

func (w *testServer) do(session, method string, body io.Reader) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), testTimeout)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, w.url, body)
	must.Succeed(w.t, err)
	r.Header.Set("Session", session)
	return w.http.Do(r)
}

// requestKinds are requests in progress. Each handler returns only when the request is aborted, or
// next is closed.
var requestKinds = map[string]func(w http.ResponseWriter, r *http.Request, next <-chan struct{}, going *atomic.Int64){
	"events": func(w http.ResponseWriter, r *http.Request, next <-chan struct{}, going *atomic.Int64) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		going.Add(1)
		select {
		case <-r.Context().Done():
		case <-next:
		}
		_, _ = io.WriteString(w, "data: 2\n\n")
	},
	"download": func(w http.ResponseWriter, _ *http.Request, next <-chan struct{}, going *atomic.Int64) {
		for piece := bytes.Repeat([]byte("x"), 32<<10); ; going.Add(1) {
			if _, err := w.Write(piece); err != nil {
				return
			}
			select {
			case <-next:
				return
			default:
			}
		}
	},
	"upload": func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}, going *atomic.Int64) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		for buf := make([]byte, 4<<10); ; going.Add(1) {
			if _, err := r.Body.Read(buf); err != nil {
				return
			}
		}
	},
}

// TestRegistry_AbortEndsRequests aborts one request while another session's continues, over HTTP/2
// on the same connection.
func TestRegistry_AbortEndsRequests(t *testing.T) {
	t.Parallel()
	for kind, serve := range requestKinds {
		for _, http2 := range []bool{false, true} {
			t.Run(map[bool]string{false: "http1 ", true: "http2 "}[http2]+kind, func(t *testing.T) {
				t.Parallel()
				next := make(chan struct{})
				var going, other atomic.Int64
				w := newTestServer(t, http2, func(rw http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Session") == "victim" {
						serve(rw, r, nil, &going)
						return
					}
					requestKinds["events"](rw, r, next, &other)
				})
				bystander, err := w.do("bystander", "GET", nil)
				must.Succeed(t, err)
				defer bystander.Body.Close()
				method, body := "GET", io.Reader(nil)
				if kind == "upload" { // that stalls
					from, to := io.Pipe()
					defer to.Close()
					go func() { _, _ = to.Write([]byte("beginning")) }()
					method, body = "POST", from
				}
				victim, err := w.do("victim", method, body)
				must.Succeed(t, err)
				defer victim.Body.Close()
				if victim.ProtoMajor == 2 != http2 {
					t.Fatalf("over %s", victim.Proto)
				}
				awaitStandstill(t, &going)
				if n := w.registry.Abort([]string{"victim"}); n != 1 {
					t.Errorf("%d requests were cut", n)
				}
				select {
				case why := <-w.ended:
					if !errors.Is(why, ErrSessionEnded) {
						t.Errorf("its context ended because of %v", why)
					}
				case <-time.After(testTimeout):
					t.Fatal("its handler goes on")
				}
				if _, err := io.Copy(io.Discard, victim.Body); err == nil {
					t.Error("the client takes what it got for the whole answer")
				}
				close(next)
				if b, err := io.ReadAll(bystander.Body); err != nil || string(b) != "data: 1\n\ndata: 2\n\n" {
					t.Errorf("the other session's response: %q, %v", b, err)
				}
			})
		}
	}
}

// awaitStandstill waits until a request is in progress and blocked by its client.
func awaitStandstill(t *testing.T, going *atomic.Int64) {
	t.Helper()
	tick, end := time.NewTicker(30*time.Millisecond), time.After(testTimeout)
	defer tick.Stop()
	for last := int64(0); ; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("it does not come to a standstill")
		}
		now := going.Load()
		if now > 0 && now == last {
			return
		}
		last = now
	}
}

func TestAbortable_ClosesUpgradedConnection(t *testing.T) {
	t.Parallel()
	for _, severed := range []bool{true, false} {
		t.Run(map[bool]string{true: "severed", false: "closed"}[severed], func(t *testing.T) {
			t.Parallel()
			registry, ended := New(nil), make(chan error, 1)
			srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				sever := Aborter(abortFunc(func() {}))
				if !severed {
					sever = nil
				}
				guarded, _, cut := Abortable(rw, r, sever, nil)
				e := registry.Register(cut)
				defer e.Done()
				e.SetSession("s")
				c, buffered, err := http.NewResponseController(guarded).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(c,
					"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				_, err = io.Copy(c, buffered)
				ended <- err
			}))
			t.Cleanup(srv.Close)
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			must.Succeed(t, err)
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(testTimeout))
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
			in := bufio.NewReader(c)
			for got := ""; !strings.HasSuffix(got, "\r\n\r\nhello"); {
				b, err := in.ReadByte()
				if err != nil {
					t.Fatalf("after %q: %v", got, err)
				}
				got += string(b)
			}
			registry.Abort([]string{"s"})
			if err := <-ended; err == nil {
				t.Error("the handler sees an orderly end")
			}
			if b, err := io.ReadAll(in); len(b) > 0 {
				t.Errorf("the client gets %q, %v", b, err)
			}
		})
	}
}

// hijackDuring is a writer whose request is aborted during Hijack.
type hijackDuring struct {
	*httptest.ResponseRecorder
	during func()
	conn   net.Conn
}

func (r *hijackDuring) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.during()
	return r.conn, nil, nil
}

// abortFunc is an Aborter.
type abortFunc func()

func (f abortFunc) Abort() { f() }

func TestAbortable_WritesNothingAfterAbort(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	severed := 0
	w, r, cut := Abortable(rec, r, abortFunc(func() { severed++ }), nil)
	_, _ = io.WriteString(w, "before")
	cut.Abort()
	w.WriteHeader(500)
	_, err := w.Write([]byte("after"))
	_, err2 := io.WriteString(w, "after")
	if !errors.Is(err, ErrSessionEnded) || !errors.Is(err2, ErrSessionEnded) ||
		!errors.Is(http.NewResponseController(w).Flush(), ErrSessionEnded) ||
		rec.Flushed {
		t.Errorf("writes: %v, %v", err, err2)
	}
	if rec.Code != 200 || rec.Body.String() != "before" || severed != 1 ||
		!errors.Is(context.Cause(r.Context()), ErrSessionEnded) {
		t.Errorf("%d %q, severed %d times, %v", rec.Code, rec.Body, severed, context.Cause(r.Context()))
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	up := &hijackDuring{ResponseRecorder: httptest.NewRecorder(), conn: ours}
	w, _, cut = Abortable(up, httptest.NewRequest("GET", "/", nil), nil, nil)
	up.during = cut.Abort
	if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, ErrSessionEnded) {
		t.Errorf("an upgrade while it is cut: %v", err)
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // a pipe's
		t.Errorf("its connection: %v", err)
	}
}

// readerFromRecorder is a writer with ReadFrom.
type readerFromRecorder struct {
	discard
	took int64
}

func (f *readerFromRecorder) ReadFrom(r io.Reader) (n int64, err error) {
	n, err = io.Copy(io.Discard, r)
	f.took += n
	return n, err
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(p []byte) (int, error) { return len(p), nil }

func TestAbortable_ReadFromEndsAfterAbort(t *testing.T) {
	t.Parallel()
	inner := &readerFromRecorder{}
	w, _, cut := Abortable(inner, httptest.NewRequest("GET", "/", nil), nil, nil)
	if n, err := io.Copy(w, io.LimitReader(strings.NewReader("hello"), 5)); n != 5 || err != nil || inner.took != 5 {
		t.Errorf("%d, %v; %d by the inner ReadFrom", n, err, inner.took)
	}
	cut.Abort()
	if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("more")); !errors.Is(err, ErrSessionEnded) ||
		inner.took != 5 {
		t.Errorf("after the cut: %v, %d", err, inner.took)
	}
	plain, _, _ := Abortable(discard{}, httptest.NewRequest("GET", "/", nil), nil, nil)
	if _, ok := plain.(io.ReaderFrom); ok {
		t.Error("a ReadFrom that the inner writer has not")
	}
}

func TestAbortable_WriteDoesNotAllocate(t *testing.T) {
	w, _, _ := Abortable(discard{}, httptest.NewRequest("GET", "/", nil), nil, nil)
	piece := make([]byte, 32<<10)
	if n := testing.AllocsPerRun(100, func() { _, _ = w.Write(piece) }); n != 0 {
		t.Errorf("%v allocations a write", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	guarded, _, _ := Abortable(discard{}, httptest.NewRequest("GET", "/", nil), nil, nil)
	for name, w := range map[string]http.ResponseWriter{"plain": discard{}, "guarded": guarded} {
		piece := make([]byte, 32<<10)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = w.Write(piece)
			}
		})
	}
}
