// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

var errReason = errors.New("the reason")

// TestSession_CloseEndsAllCalls ends sessions while calls of all kinds wait: for the peer, for
// windows and for a connection that takes nothing.
func TestSession_CloseEndsAllCalls(t *testing.T) {
	t.Parallel()
	for _, stuck := range []bool{false, true} {
		for who, end := range map[string]func(client, server *mux.Session){
			"ours":       func(client, _ *mux.Session) { client.Close(errReason) },
			"the peer's": func(_, server *mux.Session) { server.Close(errReason) },
			"both": func(client, server *mux.Session) {
				var wg sync.WaitGroup
				wg.Go(func() { client.Close(errReason) })
				wg.Go(func() { client.Close(errReason) })
				wg.Go(func() { server.Close(errReason) })
				wg.Wait()
			},
		} {
			t.Run(who+map[bool]string{true: ", stuck"}[stuck], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { closeBusy(t, stuck, who, end) })
			})
		}
	}
}

func closeBusy(t *testing.T, stuck bool, who string, end func(client, server *mux.Session)) {
	a, b := pipe(128 << 10)
	g := newGate(a)
	g.open.Store(true)
	client, server := newSession(t, g, mux.Config{Client: true}), newSession(t, b, mux.Config{})
	x, y := openStream(t, client, server, "")
	v, w := openStream(t, client, server, "")
	idle, _ := openStream(t, client, server, "")
	synctest.Wait()
	g.open.Store(!stuck)
	var calls []*call
	add := func(what string, f func() (int, error)) { calls = append(calls, startCall(what, f)) }
	for _, st := range []*mux.Stream{x, v} {
		add("Write", write(st, make([]byte, 3<<20)))
	}
	add("Read", read(idle))
	add("Next, then a Write", func() (int, error) {
		for {
			if _, err := y.Next(); err != nil {
				return 0, err
			}
			if !stuck {
				return y.Write(make([]byte, 3<<20))
			}
		}
	})
	add("Write of the peer", write(w, make([]byte, 3<<20)))
	add("Accept", func() (int, error) { _, err := client.Accept(); return 0, err })
	add("Accept of the peer", func() (int, error) { _, err := server.Accept(); return 0, err })
	if stuck {
		add("Ping", func() (int, error) { _, err := client.Ping(); return 0, err })
	}
	for _, c := range calls {
		c.wantBlocked(t)
	}
	end(client, server)
	for _, c := range calls {
		_, err := c.wantResult(t)
		wantBroken(t, c.what, err)
	}
	for _, s := range []*mux.Session{client, server} {
		callAfterEnd(t, s)
	}
	if err := client.Err(); who == "ours" && !errors.Is(err, errReason) {
		t.Errorf("Err() = %v, want the reason", err)
	}
	if n := client.Queued() + server.Queued(); n != 0 {
		t.Errorf("%d bytes are queued after the end", n)
	}
	x.Release()
	y.Release()
}

// callAfterEnd calls everything on a session that ended.
func callAfterEnd(t *testing.T, s *mux.Session) {
	t.Helper()
	_ = awaitEnd(t, s)
	if _, err := s.Open(t.Context(), []byte("x")); err == nil {
		t.Error("Open succeeded on a session that ended")
	}
	if _, err := s.Accept(); err == nil {
		t.Error("Accept succeeded on a session that ended")
	}
	if _, err := s.Ping(); err == nil {
		t.Error("Ping succeeded on a session that ended")
	}
	first := s.Err()
	s.Close(errors.New("too late"))
	if got := s.Err(); got != first { //nolint:errorlint // the very same
		t.Errorf("the reason changed from %v to %v", first, got)
	}
}

func TestSession_EndsOnBlockedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(100 << 10)
		t.Cleanup(func() { _ = b.Close() })
		s := newSession(t, a, mux.Config{Client: true, KeepAlive: time.Hour, Timeout: 20 * time.Second})
		st, err := s.Open(t.Context(), nil)
		noError(t, "Open", err)
		begun := time.Now()
		c := startCall("Write", write(st, make([]byte, 200<<10))) // within the window, but the connection is not read
		r := startCall("Read", read(st))
		c.wantBlocked(t)
		time.Sleep(19 * time.Second)
		c.wantBlocked(t)
		wantAlive(t, s)
		<-s.Done()
		if d := time.Since(begun); d > 40*time.Second {
			t.Errorf("it took %v", d)
		}
		for _, c := range []*call{c, r} {
			_, err := c.wantResult(t)
			wantBroken(t, c.what, err)
		}
	})
}

// TestSession_KeepsSlowPeer uses a connection that takes some bytes every now and then.
func TestSession_KeepsSlowPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(64 << 10)
		t.Cleanup(func() { _ = b.Close() })
		s := newSession(t, a, mux.Config{Client: true, KeepAlive: time.Hour, Timeout: 20 * time.Second})
		st, err := s.Open(t.Context(), nil)
		noError(t, "Open", err)
		c := startCall("Write", write(st, make([]byte, initialWindow)))
		for i := range 6 { // half a frame at a time
			c.wantBlocked(t)
			time.Sleep([]time.Duration{4 * time.Second, 15 * time.Second}[i%2])
			wantAlive(t, s)
			readFull(t, b, 32<<10)
		}
		readFull(t, b, 32<<10)
		if n, err := c.wantResult(t); n != initialWindow || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	})
}

func TestSession_EndsOnSilentPeer(t *testing.T) {
	t.Parallel()
	for _, cfg := range []mux.Config{{}, {KeepAlive: 2 * time.Second, Timeout: 3 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			keepAlive, timeout := 15*time.Second, 30*time.Second
			if cfg.KeepAlive != 0 {
				keepAlive, timeout = cfg.KeepAlive, cfg.Timeout
			}
			s, p := hostile(t, cfg)
			var heard time.Time // of the peer, last
			for range 60 {      // for a while it answers
				time.Sleep(keepAlive / 10)
				if pings := p.frames(); len(pings) > 0 {
					p.answer(pings)
					heard = time.Now()
				}
			}
			wantAlive(t, s)
			time.Sleep(time.Until(heard.Add(keepAlive + timeout - lazily)))
			wantAlive(t, s)
			if n := count(p.frames(), isPing); n == 0 {
				t.Errorf("no ping in %v", time.Since(heard))
			}
			<-s.Done()
			if d := time.Since(heard); d > timeout+2*keepAlive {
				t.Errorf("dropped after %v, want %v", d, keepAlive+timeout)
			}
			if !errors.Is(s.Err(), mux.ErrKeepAlive) {
				t.Errorf("Err() = %v", s.Err())
			}
		})
	}
}

func isPing(f frame) bool { return f.kind == typePing && f.flags == flagSYN }

func TestSession_IdlePeersStayConnected(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "")
		time.Sleep(24 * time.Hour)
		wantAlive(t, client)
		wantAlive(t, server)
		_, err := a.Write([]byte("still there"))
		noError(t, "Write", err)
		readFull(t, b, 11)
		if d, err := client.Ping(); err != nil || d != 0 {
			t.Errorf("Ping = %v, %v", d, err)
		}
	})
}

// TestSession_BusyConnectionSurvivesPings uses a peer that sends frames all the time but does not
// answer pings.
func TestSession_BusyConnectionSurvivesPings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := hostile(t, mux.Config{})
		p.send(frame{kind: typeWindow, flags: flagSYN, id: 1})
		st, err := s.Accept()
		noError(t, "Accept", err)
		for range 60 {
			time.Sleep(5 * time.Second)
			p.send(frame{kind: typeData, id: 1, data: []byte("tick")})
			readFull(t, st, 4)
		}
		wantAlive(t, s)
		if n := count(p.frames(), isPing); n > 12 { // some, to measure
			t.Errorf("%d pings in 5 minutes on a connection that was never silent", n)
		}
	})
}

func TestSession_Ping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := hostile(t, mux.Config{KeepAlive: time.Hour})
		p.answer(p.frames())
		var took time.Duration
		c := startCall("Ping", func() (int, error) {
			var err error
			took, err = s.Ping()
			return 0, err
		})
		c.wantBlocked(t)
		ping := p.frames()
		if count(ping, isPing) != 1 {
			t.Fatalf("frames %v, want one ping", ping)
		}
		p.send(frame{kind: typePing, flags: flagACK, length: ping[0].length + 1}) // not the answer
		c.wantBlocked(t)
		time.Sleep(50 * time.Millisecond)
		p.send(frame{kind: typePing, flags: flagACK, length: ping[0].length})
		c.wantError(t, nil)
		if took != 50*time.Millisecond+lazily {
			t.Errorf("Ping = %v, want %v", took, 50*time.Millisecond+lazily)
		}
		p.wants(frame{kind: typePing, flags: flagACK, length: 0xfedcba98},
			frame{kind: typePing, flags: flagSYN, length: 0xfedcba98})
		wantAlive(t, s)
	})
}

func TestSession_OpenEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := hostile(t, mux.Config{KeepAlive: time.Hour})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Open(over, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Open with a context that is over: %v", err)
		}
		for range 4096 {
			_, err := s.Open(t.Context(), nil)
			noError(t, "Open", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := startCall("Open beyond 4096", func() (int, error) { _, err := s.Open(ctx, nil); return 0, err })
		second := startCall("Open beyond 4096", func() (int, error) {
			_, err := s.Open(t.Context(), nil)
			return 0, err
		})
		first.wantBlocked(t)
		second.wantBlocked(t)
		cancel()
		if _, err := first.wantResult(t); !errors.Is(err, context.Canceled) {
			t.Errorf("Open = %v, want that the context is over", err)
		}
		second.wantBlocked(t)
		opened := p.frames()
		if n := count(opened, func(f frame) bool { return f.kind != typePing && f.flags&flagSYN != 0 }); n != 4096 {
			t.Errorf("%d openings on the wire", n)
		}
		p.send(frame{kind: typeWindow, flags: flagACK, id: opened[len(opened)-1].id})
		second.wantError(t, nil)
	})
}

// TestSession_EndedOpeningsFreeSlots checks that streams that were reset free their slots even if
// the peer acknowledges nothing.
func TestSession_EndedOpeningsFreeSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := hostile(t, mux.Config{KeepAlive: time.Hour})
		for i := range 5000 {
			st, err := s.Open(t.Context(), []byte("x"))
			noError(t, "Open", err)
			if i%2 == 0 {
				noError(t, "Reset", st.Reset(1))
				continue
			}
			p.send(frame{kind: typeWindow, flags: flagRST, id: st.ID(), length: 2})
			_, err = st.Read(make([]byte, 1))
			wantReset(t, "Read", err, 2)
		}
		if n := s.NumStreams(); n != 0 {
			t.Errorf("%d streams remain", n)
		}
	})
}

// slowCloseConn is a connection whose Read returns a while after Close.
type slowCloseConn struct{ *memConn }

func (c slowCloseConn) Read(p []byte) (int, error) {
	n, err := c.memConn.Read(p)
	if err != nil {
		time.Sleep(time.Second)
	}
	return n, err
}

func TestSession_CloseWaitsForGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := pipe(0)
		s := newSession(t, slowCloseConn{a}, mux.Config{})
		begun := time.Now()
		s.Close(errReason)
		if d := time.Since(begun); d < time.Second {
			t.Errorf("Close returned after %v, when a goroutine was still reading", d)
		}
	})
}
