// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestDesiredFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		busy  int
		lossy bool
		want  int
	}{{0, false, 0}, {0, true, 0}, {1, false, 4}, {2, false, 6}, {3, false, 8}, {8, false, 8}, {1, true, 16},
		{16, true, 16}} {
		if got := desiredFor(c.busy, c.lossy); got != c.want {
			t.Errorf("%d busy, lossy %v: %d connections, want %d", c.busy, c.lossy, got, c.want)
		}
	}
}

func TestDesiredConns_Expires(t *testing.T) {
	t.Parallel()
	var w desiredConns
	at := time.Unix(1_000_000, 0)
	steps := []struct {
		after   time.Duration
		number  int
		changed bool
		current int
	}{
		{0, 0, false, 0},
		{0, 4, true, 4},
		{time.Second, 4, false, 4},
		{0, 8, true, 8},
		{time.Second, 4, false, 8},
		{desireTime / 2, 8, true, 8},
		{desireTime - 1, 0, false, 8},
		{1, 0, false, 0},
		{0, 4, true, 4},
	}
	for i, s := range steps {
		at = at.Add(s.after)
		if changed := w.update(s.number, at); changed != s.changed || w.current(at) != s.current {
			t.Errorf("step %d: changed %v, current %d; want %v, %d", i, changed, w.current(at), s.changed, s.current)
		}
	}
}

func TestSession_PickLink(t *testing.T) {
	t.Parallel()
	best := []linkLoad{
		{streams: 1}, {streams: 7}, {queued: 300}, {busy: true}, {busy: true, queued: 300}, {unresponsive: true},
	}
	shuffled := []linkLoad{best[3], best[5], best[1], best[4], best[0], best[2]}
	slices.SortFunc(shuffled, func(a, b linkLoad) int {
		if a.less(b) {
			return -1
		}
		return 1
	})
	if !slices.Equal(shuffled, best) {
		t.Errorf("order %+v", shuffled)
	}
}

// echoBytes sends n bytes, a multiple of 16, through a session and waits for their echo.
func echoBytes(t *testing.T, s *Session, n int) {
	t.Helper()
	st, err := s.Open(t.Context(), fullHeader())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	var writing sync.WaitGroup
	defer writing.Wait()
	sent := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	writing.Go(func() {
		if _, err := st.Write(sent); err != nil {
			t.Error(err)
		}
		_ = st.CloseWrite()
	})
	got, err := io.ReadAll(struct{ io.Reader }{st})
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes came back as they were sent: %v", len(got), n, err)
	}
}

// sessionPair is a session as both sides see it; opener is the side that opens streams, which the
// other echoes.
type sessionPair struct{ client, server, opener *Session }

// forEachRole runs a test with a forwarder's session and with an agent's, each in a synctest
// bubble.
func forEachRole(t *testing.T, test func(t *testing.T, h *testServer, s sessionPair)) {
	t.Helper()
	for _, role := range []Role{RoleForwarder, RoleAgent} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newTestServer(t, overPipe, newHandler())
				r := h.startClient(ClientConfig{
					Hello:    func() Hello { return Hello{Role: role, Token: "flt_x"} },
					OnStream: func(_ context.Context, _ *Session, st *Stream) { echo(st) },
				})
				s := sessionPair{client: r.awaitSession(t), server: <-h.handler.ups}
				s.opener = s.client
				if role == RoleAgent {
					s.opener = s.server
				}
				synctest.Wait()
				test(t, h, s)
			})
		})
	}
}

func (e sessionPair) awaitConnections(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	if c, s := openLinks(e.client), openLinks(e.server); c != n || s != n {
		t.Errorf("the client has %d connections, the server %d, want %d", c, s, n)
	}
}

func TestSession_GrowsWithTrafficAndShrinks(t *testing.T) {
	t.Parallel()
	forEachRole(t, func(t *testing.T, h *testServer, s sessionPair) {
		time.Sleep(10 * time.Minute)
		for range 50 {
			echoBytes(t, s.opener, 1<<10)
		}
		s.awaitConnections(t, 2)
		if n := h.acceptedConns(); n != 2 {
			t.Errorf("%d connections were made without need", n)
		}
		for range 4 { // one after the other, each on a connection that is not busy
			echoBytes(t, s.opener, 3<<20)
		}
		s.awaitConnections(t, grownConnections)
		kept := open(t, s.opener) // it has one of the new connections
		if err := kept.WaitOpened(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(desireTime - time.Second)
		s.awaitConnections(t, grownConnections)
		time.Sleep(idleTime + 2*shrinkInterval)
		s.awaitConnections(t, 2)
		if _, err := io.WriteString(kept, "still here"); err != nil {
			t.Fatal(err)
		}
		_ = kept.CloseWrite()
		if b, err := io.ReadAll(kept); err != nil || string(b) != "still here" {
			t.Errorf("a stream of before: %q, %v", b, err)
		}
		_ = kept.Close()
		time.Sleep(10 * time.Minute)
		s.awaitConnections(t, 2)
		if n := h.acceptedConns(); n != grownConnections {
			t.Errorf("%d connections were made", n)
		}
		if s.client.Err() != nil || s.client.Streams() != 0 {
			t.Errorf("the session: %v, %d streams", s.client.Err(), s.client.Streams())
		}
	})
}

// TestSession_ServerSendsDesiredConnections checks that the server sends the number of connections
// that its own traffic and losses ask for.
func TestSession_ServerSendsDesiredConnections(t *testing.T) {
	t.Parallel()
	forEachRole(t, func(t *testing.T, _ *testServer, s sessionPair) {
		s.server.mu.Lock()
		l := s.server.links.active[1]
		s.server.mu.Unlock()
		l.conn.markBusy()
		s.awaitConnections(t, 4)
		time.Sleep(desireTime + idleTime + 2*shrinkInterval)
		s.awaitConnections(t, 2)
		for range 100 { // for as long as it lasts
			l.conn.markBusy()
			time.Sleep(time.Second)
		}
		s.awaitConnections(t, 4)
	})
}

// TestSession_OldServerKeepsConnections checks that a session with an old server, which cannot
// retire a connection, has two.
func TestSession_OldServerKeepsConnections(t *testing.T) {
	t.Parallel()
	forEachRole(t, func(t *testing.T, h *testServer, s sessionPair) {
		s.client.mu.Lock()
		s.client.welcome.Features = []Feature{FeatureLabels, FeatureTrafficPolicy}
		s.client.mu.Unlock()
		for range 4 {
			echoBytes(t, s.opener, 3<<20)
		}
		time.Sleep(time.Hour)
		s.awaitConnections(t, 2)
		if n := h.acceptedConns(); n != 2 {
			t.Errorf("%d connections were made", n)
		}
	})
}

func TestLink_UnexpectedRetiredEndsIt(t *testing.T) {
	t.Parallel()
	forEachRole(t, func(t *testing.T, h *testServer, s sessionPair) {
		s.server.mu.Lock()
		l := s.server.links.active[1]
		s.server.mu.Unlock()
		if err := l.send(&message{Type: typeRetired}); err != nil { // unasked
			t.Fatal(err)
		}
		synctest.Wait()
		if l.ctx.Err() == nil {
			t.Error("the connection lives")
		}
		time.Sleep(time.Minute)
		s.awaitConnections(t, 2)
		if n := h.acceptedConns(); n != 3 {
			t.Errorf("%d connections were made", n)
		}
	})
}

// TestLink_RetiringAbortsNoStream retires connections repeatedly while streams are opened, move
// bytes and end. None is aborted.
func TestLink_RetiringAbortsNoStream(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RoleForwarder, RoleAgent} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			h := newTestServer(t, overTCP, newHandler())
			r := h.startClient(ClientConfig{
				Connections: 4,
				Hello:       func() Hello { return Hello{Role: role, Token: "flt_x"} },
				OnStream:    func(_ context.Context, _ *Session, st *Stream) { echo(st) },
			})
			s := r.awaitSession(t)
			opener := s
			if far := wait.Receive(t, "the session", h.handler.ups); role == RoleAgent {
				opener = far
			}
			awaitConnections(t, 4, s)
			var opening, retiring sync.WaitGroup
			stop := make(chan struct{})
			for i := range 8 {
				opening.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
							echoBytes(t, opener, 16<<((i+n)%14))
						}
					}
				})
			}
			for range 30 {
				awaitConnections(t, 4, s)
				s.mu.Lock()
				l := s.links.active[3] // whatever it carries
				s.links.active, s.links.retiring = s.links.active[:3], append(s.links.retiring, l)
				s.mu.Unlock()
				retiring.Go(l.retire)
				wake(s.legs.connsChanged) // the client dials another one in its place
			}
			close(stop)
			opening.Wait()
			retiring.Wait()
			awaitConnections(t, 4, s)
		})
	}
}

func TestWindowBudget_LimitsGrowthOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ limit, most int64 }{
		"unbounded": {1 << 30, 15 << 20},
		"bounded":   {5 << 20, 5 << 20},
		"none left": {1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const size = 48 << 20
				handler := newHandler()
				handler.stream = func(_ context.Context, _ *Session, st *Stream) {
					_ = st.Accept()
					_, _ = io.CopyN(struct{ io.Writer }{st}, zeros{}, size)
					_ = st.CloseWrite()
					_, _ = io.Copy(io.Discard, struct{ io.Reader }{st})
				}
				h := newTestServer(t, overPipe, handler)
				windows := NewWindowBudget(c.limit)
				s := h.startClient(ClientConfig{Connections: 1, WindowBudget: windows,
					DialContext: h.dialWithDelay(40 * time.Millisecond)}).
					awaitSession(t)
				st := open(t, s)
				n, most := int64(0), int64(0)
				for buf := make([]byte, 64<<10); ; {
					m, err := st.Read(buf)
					n += int64(m)
					most = max(most, windows.Used())
					if err != nil {
						break
					}
				}
				if n != size || most > c.limit || most > c.most || c.limit == 1<<30 && most != c.most {
					t.Errorf("%d bytes came; windows had grown by %d, want %d", n, most, c.most)
				}
				_ = st.CloseWrite()
				_ = st.Close()
				synctest.Wait()
				if used := windows.Used(); used != 0 {
					t.Errorf("%d bytes were not given back", used)
				}
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestLink_RetiresOnceBothSidesAreDone checks that the connection waits for data of an ended stream
// that may still be in the other side's buffers.
func TestLink_RetiresOnceBothSidesAreDone(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RoleForwarder, RoleAgent} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				result := make(chan error, 1)
				slow := func(ctx context.Context, st *Stream) {
					_, _ = st.Accept(), st.CloseWrite()
					time.Sleep(time.Hour)
					if ctx.Err() != nil {
						result <- context.Cause(ctx)
						return
					}
					_, err := io.Copy(io.Discard, struct{ io.Reader }{st})
					result <- err
				}
				handler := newHandler()
				handler.stream = func(ctx context.Context, _ *Session, st *Stream) { slow(ctx, st) }
				h := newTestServer(t, overPipe, handler)
				r := h.startClient(ClientConfig{
					Hello:    func() Hello { return Hello{Role: role, Token: "flt_x"} },
					OnStream: func(ctx context.Context, _ *Session, st *Stream) { slow(ctx, st) },
				})
				s := sessionPair{client: r.awaitSession(t), server: <-h.handler.ups}
				s.opener = s.client
				if role == RoleAgent {
					s.opener = s.server
				}
				s.awaitConnections(t, 2)
				l := s.client.links.active[1]
				first := open(t, s.opener)
				st := open(t, s.opener) // has the second connection
				for _, st := range []*Stream{first, st} {
					_, _ = st.Write(make([]byte, 100<<10))
					_ = st.CloseWrite()
					_, _ = io.Copy(io.Discard, struct{ io.Reader }{st})
					_ = st.Close()
				}
				s.client.mu.Lock()
				s.client.links.detach(l)
				s.client.mu.Unlock()
				var retiring sync.WaitGroup
				retiring.Go(l.retire)
				for range 2 {
					if err := <-result; err != nil {
						t.Errorf("a stream was cut: %v", err)
					}
				}
				retiring.Wait()
			})
		})
	}
}
