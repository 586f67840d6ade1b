// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// agentPair returns an agent's session as the server sees it; the agent serves streams with f.
func agentPair(t *testing.T, transport string, f func(*Stream)) *Session {
	t.Helper()
	h := newTestServer(t, transport, newHandler())
	r := h.startClient(ClientConfig{Hello: agentHello, OnStream: func(_ context.Context, _ *Session, st *Stream) {
		serveUnlessFirst(st, f)
	}})
	r.awaitSession(t)
	s := wait.Receive(t, "the server's session", h.handler.ups)
	if transport == inPairs {
		beginParking(t, s)
	}
	return s
}

const firstSealed = "first" // endpoint of the stream that begins the parking of connections

// beginParking opens the session's first sealed stream, which runs in the multiplexer.
func beginParking(t *testing.T, s *Session) {
	t.Helper()
	st, err := s.Open(timeoutContext(t), OpenHeader{EndpointID: firstSealed, Sealed: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.WaitOpened(timeoutContext(t)); err == nil || st.pair != nil {
		t.Errorf("the first sealed stream has a pair: %v, %v", st.pair, err)
	}
	_ = st.Close()
}

func serveUnlessFirst(st *Stream, f func(*Stream)) {
	if st.Header().EndpointID == firstSealed {
		_ = st.Refuse(RefusedUnknownEndpoint)
		return
	}
	f(st)
}

// usable returns how many connections a sealed stream of the session may use.
func usable(s *Session) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pool := s.links.active[0].pairs
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for _, c := range pool.parked {
		if c.conn != nil {
			n++
		}
	}
	return n
}

// forwarderPair returns a forwarder's session; the server serves its streams with f.
func forwarderPair(t *testing.T, transport string, f func(*Stream)) *Session {
	t.Helper()
	handler := newHandler()
	handler.stream = func(_ context.Context, _ *Session, st *Stream) { serveUnlessFirst(st, f) }
	s := newTestServer(t, transport, handler).startClient(ClientConfig{}).awaitSession(t)
	if transport == inPairs {
		beginParking(t, s)
	}
	return s
}

// forEachDirection runs a test with streams that the server opens and with streams that a forwarder
// opens.
func forEachDirection(t *testing.T, test func(t *testing.T, pair func(f func(*Stream)) *Session)) {
	t.Helper()
	forEachTransport(t, func(t *testing.T, transport string) {
		for name, pair := range map[string]func(*testing.T, string, func(*Stream)) *Session{"to agent": agentPair,
			"to server": forwarderPair} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, func(f func(*Stream)) *Session { return pair(t, transport, f) })
			})
		}
	})
}

func open(t *testing.T, s *Session) *Stream {
	t.Helper()
	h := fullHeader()
	if _, inMux := s.SealedStreams.Counts(); inMux > 0 {
		h.Sealed = true
		wait.Until(t, "a parked connection", func() bool { return usable(s) > 0 })
	}
	st, err := s.Open(timeoutContext(t), h)
	if err != nil {
		t.Fatalf("opening a stream: %v", err)
	}
	if h.Sealed != (st.pair != nil) {
		t.Fatalf("sealed: %v, has a pair: %v", h.Sealed, st.pair != nil)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}
