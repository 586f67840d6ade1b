// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestSession_RefusedStreamsLeakNothing(t *testing.T) {
	// Not parallel: it counts the process' descriptors and goroutines.
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{Hello: agentHello, OnStream: func(_ context.Context, _ *Session, st *Stream) {
		_ = st.Refuse(RefusedUpstream)
	}})
	r.awaitSession(t)
	far := wait.Receive(t, "the session", h.handler.ups)
	awaitConnections(t, 2, far)
	refuse := func() {
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				st, err := far.Open(context.Background(), fullHeader())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = st.Read(make([]byte, 1))
				var refused *RefusedError
				if !errors.As(err, &refused) {
					t.Error(err)
				}
				_ = st.Close()
			})
		}
		wg.Wait()
	}
	refuse()
	before := descriptors(t)
	for range 3 {
		refuse()
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	if n := far.Streams(); n != 0 {
		t.Errorf("%d streams", n)
	}
	far.mu.Lock()
	links := slices.Clone(far.links.active)
	far.mu.Unlock()
	for _, l := range links { // the multiplexer wakes a stream's reader before it has let go of the stream
		wait.Until(t, "the multiplexer to have no stream but the control stream", func() bool {
			return l.mux.NumStreams() == 1
		})
		if q := l.mux.Queued(); q != 0 {
			t.Errorf("%d bytes are counted as queued", q)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("cannot count descriptors: %v", err)
	}
	return len(entries)
}

func TestSession_OpenEndsWithContext(t *testing.T) {
	t.Parallel()
	s := agentPair(t, overPipe, echo)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Open(ctx, fullHeader()); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if s.Streams() != 0 {
		t.Error("a stream that was not opened is counted")
	}
	if _, err := s.Open(t.Context(), OpenHeader{}); err == nil {
		t.Error("opened a stream without an endpoint id")
	}
	if err := open(t, s).WaitOpened(timeoutContext(t)); err != nil {
		t.Error(err)
	}
}

// countingHandler counts the ends of a session.
type countingHandler struct {
	sideHandler
	n int
}

func (e *countingHandler) sessionEnded(*Session, error) { e.n++ }

func TestSession_LivesWhileUnusedConnectionLives(t *testing.T) {
	t.Parallel()
	end := &countingHandler{}
	s := newSession(end, Hello{}, Welcome{}, nil)
	first, second := &link{conn: &muxConn{}}, &link{conn: &muxConn{}}
	if err := errors.Join(s.addLinkLocked(first, 2), s.addLinkLocked(second, 2)); err != nil {
		t.Fatal(err)
	}
	s.removeLinkFromChoice(first)
	s.removeLinkFromChoice(second)
	s.removeLink(second, io.EOF)
	if end.n != 0 || s.Err() != nil {
		t.Fatal("the session ended while a connection's handlers may run")
	}
	s.removeLink(first, io.ErrClosedPipe)
	if end.n != 1 || !errors.Is(s.Err(), io.ErrClosedPipe) {
		t.Fatalf("the session ended %d times: %v", end.n, s.Err())
	}
	if err := s.addLinkLocked(&link{conn: &muxConn{}}, 2); err == nil {
		t.Error("a connection joined a session that has ended")
	}
}

// TestSession_MarksConnectionsOfDrainingPeer holds that streams of a connection that is added while the peer
// drains learn of that, too.
func TestSession_MarksConnectionsOfDrainingPeer(t *testing.T) {
	t.Parallel()
	s := newSession(nil, Hello{}, Welcome{}, nil)
	s.setPeerDrainingLocked()
	l := &link{conn: &muxConn{}}
	l.peerDraining, l.setDraining = context.WithCancel(t.Context())
	if err := s.addLinkLocked(l, 1); err != nil || l.peerDraining.Err() == nil {
		t.Errorf("%v, or a connection of a peer that drains is not marked", err)
	}
}
