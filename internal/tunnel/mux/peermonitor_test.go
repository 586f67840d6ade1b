// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
	"github.com/fairlead-dev/fairlead/test/support/frozen"
)

// countingConn counts the frames that a session sends.
type countingConn struct {
	*memConn
	pings atomic.Int32
}

func (c *countingConn) WriteFrames(head, payload []byte) error {
	if len(head) >= 2 && head[1] == 2 {
		c.pings.Add(1)
	}
	return c.memConn.WriteFrames(head, payload)
}

// watched is a session with a peer that can be stopped.
type watched struct {
	*mux.Session
	near    *countingConn
	far     frozen.Process
	peer    *mux.Session
	late    atomic.Int32
	changes atomic.Int32
}

func newWatched(t *testing.T) *watched {
	a, b := pipe(0)
	w := &watched{near: &countingConn{memConn: a}}
	w.Session = newSession(t, w.near, mux.Config{
		Client: true, OnProbe: func() { w.late.Add(1) }, OnResponsiveness: func() { w.changes.Add(1) },
	})
	w.peer = newSession(t, &wire{Conn: w.far.Conn(b)}, mux.Config{})
	t.Cleanup(w.far.Continue)
	return w
}

func (w *watched) unresponsive() bool {
	_, yes := w.Unresponsive()
	return yes
}

func TestSession_FrozenPeerIsUnresponsive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		time.Sleep(time.Minute)
		w.far.Stop()
		notified := make(chan time.Time, 1)
		began := time.Now()
		w.OnUnresponsive(func() { notified <- time.Now() })
		if d := (<-notified).Sub(began); d > 1500*time.Millisecond {
			t.Errorf("notified after %v", d)
		}
		if since, yes := w.Unresponsive(); !yes || since.Sub(began) > 250*time.Millisecond {
			t.Errorf("unresponsive since %v: %v", since.Sub(began), yes)
		}
		w.OnUnresponsive(func() { notified <- time.Now() })
		select {
		case <-notified:
		default:
			t.Error("a known state is not reported at once")
		}
		time.Sleep(20 * time.Second)
		wantAlive(t, w.Session)
		if w.late.Load() != 1 || w.changes.Load() != 1 {
			t.Errorf("late %d times, changed %d times", w.late.Load(), w.changes.Load())
		}
		w.far.Continue()
		time.Sleep(time.Millisecond)
		if w.unresponsive() || w.changes.Load() != 2 {
			t.Errorf("unresponsive: %v after %d changes", w.unresponsive(), w.changes.Load())
		}
		here, there := openStream(t, w.Session, w.peer, "x")
		if got := readFull(t, there, 1); !bytes.Equal(got, []byte("x")) || here == nil {
			t.Errorf("the peer that goes on got %q", got)
		}
	})
}

// TestSession_SlowAnswerIsNotUnresponsive checks that a call may wait for an upstream for as long
// as that takes: its peer answers pings, of which there are few.
func TestSession_SlowAnswerIsNotUnresponsive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		time.Sleep(time.Minute)
		before := w.near.pings.Load()
		stop := w.OnUnresponsive(func() { t.Error("notified") })
		time.Sleep(time.Minute)
		if n := w.near.pings.Load() - before; n > 40 {
			t.Errorf("%d pings in a minute", n)
		}
		stop()
		time.Sleep(time.Second)
		before = w.near.pings.Load()
		time.Sleep(10 * time.Minute)
		// Each side pings after 15 s without a frame, and answers the other's; a call that waits
		// would cost 300.
		if n := w.near.pings.Load() - before; n > 2*40 {
			t.Errorf("%d pings and answers in ten minutes without a call", n)
		}
		if w.unresponsive() {
			t.Error("unresponsive")
		}
	})
}

func TestSession_ProbeFindsFrozenPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		time.Sleep(time.Minute)
		w.Probe()
		time.Sleep(5 * time.Second)
		if w.unresponsive() {
			t.Fatal("unresponsive while it answers")
		}
		w.far.Stop()
		w.Probe()
		time.Sleep(1200 * time.Millisecond)
		if !w.unresponsive() || w.late.Load() != 0 {
			t.Errorf("unresponsive: %v; late %d times", w.unresponsive(), w.late.Load())
		}
	})
}

// TestSession_SlowWayIsNotUnresponsive checks that three round trips are waited for where they take
// long.
func TestSession_SlowWayIsNotUnresponsive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		for range 3 { // pings that are answered after 0.9 s
			w.far.Stop()
			asked := make(chan error, 1)
			go func() {
				_, err := w.Ping()
				asked <- err
			}()
			time.Sleep(900 * time.Millisecond)
			w.far.Continue()
			noError(t, "Ping", <-asked)
		}
		w.far.Stop()
		stop := w.OnUnresponsive(func() {})
		time.Sleep(2500 * time.Millisecond)
		if w.unresponsive() {
			t.Error("unresponsive before three round trips")
		}
		time.Sleep(time.Second)
		if !w.unresponsive() {
			t.Error("responsive after more than three seconds")
		}
		stop()
	})
}
