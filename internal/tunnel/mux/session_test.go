// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

func TestSession_ServeGetsWaitingStreams(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		open := func(from, to int) {
			for i := from; i < to; i++ {
				_, err := client.Open(t.Context(), fmt.Appendf(nil, "%03d", i))
				noError(t, "Open", err)
			}
			synctest.Wait()
		}
		open(0, 10)
		st, err := server.Accept()
		noError(t, "Accept", err)
		if got := readFull(t, st, 3); string(got) != "000" {
			t.Errorf("the first stream says %q", got)
		}
		var mu sync.Mutex
		var got []*mux.Stream
		server.Serve(func(st *mux.Stream) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, st)
		})
		mu.Lock()
		if len(got) != 9 {
			t.Errorf("Serve handed over %d of the 9 streams that waited before it returned", len(got))
		}
		mu.Unlock()
		open(10, 300)
		mu.Lock()
		defer mu.Unlock()
		for i, st := range got {
			if p := readFull(t, st, 3); string(p) != fmt.Sprintf("%03d", i+1) {
				t.Errorf("stream %d says %q", i, p)
			}
		}
		if len(got) != 299 {
			t.Errorf("%d streams came, want 299", len(got))
		}
	})
}

// TestSession_AcceptFromManyGoroutines checks that none of the goroutines misses a stream, though
// many come at once.
func TestSession_AcceptFromManyGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := hostile(t, mux.Config{})
		for round := range uint32(100) {
			var calls []*call
			var frames []frame
			for i := range uint32(5) {
				calls = append(calls, startCall("Accept", func() (int, error) { _, err := s.Accept(); return 0, err }))
				frames = append(frames, syn(2*(5*round+i)+1, ""))
			}
			for _, c := range calls {
				c.wantBlocked(t)
			}
			p.send(frames...)
			for _, c := range calls {
				c.wantError(t, nil)
			}
		}
	})
}

// TestSession_ServeWhileStreamsArrive loses none and hands none over twice.
func TestSession_ServeWhileStreamsArrive(t *testing.T) {
	t.Parallel()
	a, b := pipe(0)
	client, server := newSession(t, a, mux.Config{Client: true}), newSession(t, b, mux.Config{})
	const n = 2000
	var wg sync.WaitGroup
	wg.Add(n)
	var seen [2*n + 2]atomic.Int32
	take := func(st *mux.Stream) {
		seen[st.ID()].Add(1)
		wg.Done()
	}
	for range 4 {
		go func() {
			for range n / 4 {
				if _, err := client.Open(t.Context(), []byte("x")); err != nil {
					t.Error("Open:", err)
					wg.Done()
				}
			}
		}()
	}
	for range n / 10 {
		st, err := server.Accept()
		noError(t, "Accept", err)
		take(st)
	}
	server.Serve(take)
	wg.Wait()
	for id := 1; id < 2*n; id += 2 {
		if c := seen[id].Load(); c != 1 {
			t.Errorf("stream %d came %d times", id, c)
		}
	}
}

func TestSession_Queued(t *testing.T) {
	t.Parallel()
	withGate(t, func(t *testing.T, g *gate, s *mux.Session, st *mux.Stream) {
		if q := s.Queued(); q != 0 {
			t.Errorf("%d bytes are queued on an idle session", q)
		}
		c := startCall("Write", write(st, make([]byte, 2*maxFrame)))
		c.wantBlocked(t)
		if q := s.Queued(); q < maxFrame || q > 3*maxFrame {
			t.Errorf("%d bytes are queued while %d are being written", q, 2*maxFrame)
		}
		_ = g.begun(t)
		for g.next(t) != nil {
		}
		c.wantError(t, nil)
		if q := s.Queued(); q != 0 {
			t.Errorf("%d bytes are queued after the write", q)
		}
		// A stream that waits for its window has nothing queued: the connection is free.
		g.open.Store(true)
		full := startCall("Write", write(st, make([]byte, initialWindow)))
		full.wantBlocked(t)
		if q := s.Queued(); q != 0 {
			t.Errorf("%d bytes are queued while a stream waits for its window", q)
		}
		noError(t, "Reset", st.Reset(1))
		synctest.Wait()
		if q := s.Queued(); q != 0 {
			t.Errorf("%d bytes are queued after a reset", q)
		}
	})
}

func TestSession_LimitsStreamsOfPeer(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{MaxStreams: 5}, func(t *testing.T, client, server *mux.Session) {
		var ours, theirs []*mux.Stream
		for range 5 {
			a, b := openStream(t, client, server, "")
			ours, theirs = append(ours, a), append(theirs, b)
		}
		// What this side opens does not count.
		for range 5 {
			openStream(t, server, client, "")
		}
		sixth, err := client.Open(t.Context(), []byte("too many"))
		noError(t, "Open", err)
		_, err = sixth.Read(make([]byte, 1))
		var r *mux.ResetError
		if !errors.As(err, &r) {
			t.Errorf("Read of a stream too many: %v", err)
		}
		sixth.Release()
		noError(t, "Reset", ours[2].Reset(0))
		_, _ = io.Copy(io.Discard, theirs[2])
		theirs[2].Release()
		again, err := client.Open(t.Context(), []byte("room"))
		noError(t, "Open", err)
		b, err := server.Accept()
		noError(t, "Accept", err)
		if b.ID() != again.ID() || string(readFull(t, b, 4)) != "room" {
			t.Error("another stream was accepted than was opened")
		}
		wantAlive(t, client)
		wantAlive(t, server)
	})
}

// countingBudget is a Budget that counts.
type countingBudget struct {
	mu          sync.Mutex
	left, least int64
	refused     int
}

func (p *countingBudget) Reserve(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n <= 0 || n > p.left {
		p.refused++
		return false
	}
	p.left -= n
	p.least = min(p.least, p.left)
	return true
}

func (p *countingBudget) Release(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += n
}

// TestSession_ReturnsBudget sends over a connection that takes its time, so that windows grow: only
// as far as the budget lets them, and it gets all back.
func TestSession_ReturnsBudget(t *testing.T) {
	t.Parallel()
	for _, amount := range []int64{0, 800 << 10, 1 << 30} {
		for _, end := range []string{"released", "reset", "closed"} {
			synctest.Test(t, func(t *testing.T) { budget(t, amount, end) })
		}
	}
}

func budget(t *testing.T, amount int64, end string) {
	purse := &countingBudget{left: amount, least: amount}
	a, b := pipe(0)
	client := newSession(t, late(t, a), mux.Config{Client: true})
	server := newSession(t, late(t, b), mux.Config{Budget: purse, Window: initialWindow, MaxWindow: 2 << 20})
	for range 2 {
		x, y := openStream(t, client, server, "")
		sent := randomBytes(9, 3<<20)
		c := startCall("Write", func() (int, error) {
			n, err := x.Write(sent)
			return n, errors.Join(err, x.CloseWrite())
		})
		got := make([]byte, len(sent))
		_, err := io.ReadFull(y, got)
		noError(t, "reading", err)
		if !bytes.Equal(got, sent) {
			t.Error("what was read is not what was sent")
		}
		c.wantError(t, nil)
		switch end {
		case "released":
			noError(t, "CloseWrite", y.CloseWrite())
			y.Release()
		case "reset":
			noError(t, "Reset", y.Reset(1))
			y.Release()
		}
		x.Release()
	}
	if end == "closed" {
		server.Close(errReason)
	}
	time.Sleep(time.Second)
	purse.mu.Lock()
	defer purse.mu.Unlock()
	switch {
	case purse.left != amount:
		t.Errorf("%s: of a budget of %d %d came back", end, amount, purse.left)
	case amount > 0 && purse.least == amount:
		t.Error("no window grew")
	case amount-purse.least > 2*(2<<20-initialWindow):
		t.Errorf("%d were taken: more than two windows can grow", amount-purse.least)
	}
}

// late delivers what arrives at c 10 ms later.
func late(t *testing.T, c *memConn) mux.Conn {
	in, out := pipe(0)
	l := &lateConn{memConn: &memConn{in: in.in, out: c.out}, below: c}
	type parcel struct {
		due time.Time
		p   []byte
	}
	way := make(chan parcel, 1<<10)
	go func() {
		defer close(way)
		for buf := make([]byte, 1<<20); ; {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			way <- parcel{time.Now().Add(10 * time.Millisecond), bytes.Clone(buf[:n])}
		}
	}()
	go func() {
		for x := range way {
			time.Sleep(time.Until(x.due))
			_, _ = out.Write(x.p)
		}
		_ = out.Close()
	}()
	t.Cleanup(func() { _ = c.Close() })
	return l
}

type lateConn struct {
	*memConn
	below *memConn
}

func (l *lateConn) Close() error {
	_ = l.below.Close()
	return l.memConn.Close()
}
