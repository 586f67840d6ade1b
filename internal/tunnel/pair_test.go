// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// bothEnds returns the ends of a stream that runs over a parked connection, and the session of the
// opener's end; what serves the other end waits until the test ends.
func bothEnds(t *testing.T, pair func(t *testing.T, transport string, f func(*Stream)) *Session) (
	s *Session, near, far *Stream,
) {
	t.Helper()
	ends, release := make(chan *Stream, 1), make(chan struct{})
	s = pair(t, inPairs, func(st *Stream) {
		_ = st.Accept()
		ends <- st
		<-release
	})
	t.Cleanup(func() { close(release) })
	near = open(t, s)
	return s, near, wait.Receive(t, "the other end", ends)
}

func forEachOpener(t *testing.T, test func(t *testing.T, s *Session, near, far *Stream)) {
	t.Helper()
	for name, pair := range map[string]func(*testing.T, string, func(*Stream)) *Session{"server": agentPair,
		"forwarder": forwarderPair} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, near, far := bothEnds(t, pair)
			test(t, s, near, far)
		})
	}
}

func expectBytes(t *testing.T, from, to *Stream) {
	t.Helper()
	b := make([]byte, 4)
	_, err := from.Write([]byte("ping"))
	if err == nil {
		_, err = io.ReadFull(to, b)
	}
	if err != nil || string(b) != "ping" {
		t.Fatalf("%q, %v", b, err)
	}
}

func isClosed(c *net.TCPConn) bool { return c.SetDeadline(time.Time{}) != nil }

// TestPair_EndsWithSession holds that no byte passes once the session has ended, and that this is no
// end of the stream.
func TestPair_EndsWithSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Session){
		"stopped": func(s *Session) { s.Stop(CodeTokenRevoked, "revoked") },
		"closed":  func(s *Session) { _ = s.Close() },
		"aborted": func(s *Session) { s.abort(errors.New("lost")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEachOpener(t, func(t *testing.T, s *Session, near, far *Stream) {
				expectBytes(t, near, far)
				expectBytes(t, far, near)
				end(s)
				for _, st := range []*Stream{near, far} {
					if n, err := st.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, io.EOF) ||
						errors.Is(err, net.ErrClosed) {
						t.Errorf("read %d bytes, %v", n, err)
					}
					if _, err := st.Write([]byte("x")); err == nil || errors.Is(err, net.ErrClosed) {
						t.Errorf("write: %v", err)
					}
					wait.Until(t, "the end of the raw connection", func() bool { return isClosed(st.pair.tcp) })
					if st.Socket() != nil {
						t.Error("it can still be spliced")
					}
				}
			})
		})
	}
}

// TestPair_EndsWithItsStream holds that a peer which resets a stream cannot go on over its pair.
func TestPair_EndsWithItsStream(t *testing.T) {
	t.Parallel()
	forEachOpener(t, func(t *testing.T, _ *Session, near, far *Stream) {
		expectBytes(t, near, far)
		_ = far.st.Reset(uint32(RefusedUpstream)) // and the raw connection stays
		var reset *ResetError
		wait.Until(t, "an error of writes", func() bool {
			_, err := near.Write([]byte("x"))
			return errors.As(err, &reset)
		})
		if _, err := near.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.Code != RefusedUpstream {
			t.Errorf("read: %v", err)
		}
		if !isClosed(near.pair.tcp) {
			t.Error("the raw connection is open")
		}
	})
}

// TestPair_RawEndIsNoEnd holds that an end of the raw connection counts only together with one of the
// stream in the multiplexer.
func TestPair_RawEndIsNoEnd(t *testing.T) {
	t.Parallel()
	forEachOpener(t, func(t *testing.T, _ *Session, near, far *Stream) {
		expectBytes(t, far, near)
		_ = far.pair.tcp.CloseWrite()
		_ = near.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) && !isTimeout(err) {
			t.Errorf("read: %v", err)
		}
		_ = near.SetReadDeadline(time.Time{})
		_ = far.Reset(RefusedUpstream)
		var reset *ResetError
		if _, err := near.Read(make([]byte, 1)); !errors.As(err, &reset) || near.SawEOF() {
			t.Errorf("read: %v", err)
		}
	})
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestPair_BytesBesideItBreakIt holds that bytes in the multiplexer are none of the stream's.
func TestPair_BytesBesideItBreakIt(t *testing.T) {
	t.Parallel()
	forEachOpener(t, func(t *testing.T, _ *Session, near, far *Stream) {
		expectBytes(t, far, near)
		_, _ = far.st.Write([]byte("beside"))
		_ = far.CloseWrite()
		if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read: %v", err)
		}
	})
}

// TestPair_CutWhileHalfClosed holds that the end of the session also ends a direction in which the
// multiplexer's stream has nothing left to send.
func TestPair_CutWhileHalfClosed(t *testing.T) {
	t.Parallel()
	forEachOpener(t, func(t *testing.T, s *Session, near, far *Stream) {
		expectBytes(t, near, far)
		_ = near.CloseWrite()
		_ = far.st.CloseWrite() // a peer that pretends to have ended, and goes on
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read: %v", err)
		}
		expectBytes(t, far, near)
		s.abort(errors.New("lost"))
		if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read: %v", err)
		}
	})
}

// TestPair_LeavesNothing holds that a stream that has ended cleanly leaves no open connection and no
// counted stream.
func TestPair_LeavesNothing(t *testing.T) {
	t.Parallel()
	forEachOpener(t, func(t *testing.T, s *Session, near, far *Stream) {
		for _, st := range []*Stream{near, far} {
			if err := st.CloseWrite(); err != nil {
				t.Error(err)
			}
		}
		for _, st := range []*Stream{near, far} {
			if b, err := io.ReadAll(struct{ io.Reader }{st}); err != nil || len(b) > 0 {
				t.Errorf("%q, %v", b, err)
			}
			if err := st.Close(); err != nil || !isClosed(st.pair.tcp) {
				t.Errorf("%v, closed: %v", err, isClosed(st.pair.tcp))
			}
		}
		if n := s.Streams(); n != 0 {
			t.Errorf("%d streams are counted", n)
		}
	})
}

// TestPair_CloseResetsNothing holds that what watches the session does not reset a raw connection
// whose stream has ended cleanly, and whose last bytes the kernel has yet to send.
func TestPair_CloseResetsNothing(t *testing.T) {
	t.Parallel()
	near, _ := tcpEnds(t)
	synctest.Test(t, func(t *testing.T) {
		p := newPair(&link{ctx: t.Context(), pairs: newTestPool(clientParked)}, &mux.Stream{},
			TuneConn(near).(*tunedConn))
		p.unlink()
		if synctest.Wait(); isClosed(near) {
			t.Error("it was closed with a reset")
		}
	})
}

// TestPair_CutOnTheWay holds that a stream whose raw connection something on the way has ended breaks,
// and that the pool learns that.
func TestPair_CutOnTheWay(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*net.TCPConn) error{
		"end":   func(c *net.TCPConn) error { return c.CloseWrite() },
		"reset": func(c *net.TCPConn) error { return cmp.Or(c.SetLinger(0), c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, near, far := bothEnds(t, forwarderPair)
			expectBytes(t, far, near)
			near.pair.rawEndTimeout = 10 * time.Millisecond
			if err := cut(far.pair.tcp); err != nil {
				t.Fatal(err)
			}
			if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("read: %v", err)
			}
			if !near.pair.pool.dropCut() {
				t.Error("connections are parked as before")
			}
			_ = near.Close()
		})
	}
}

// TestPair_OfUnknownNumber holds that a stream which names a parked connection that there is not, or
// that may not be its own, is reset and never reaches the handler.
func TestPair_OfUnknownNumber(t *testing.T) {
	t.Parallel()
	handler := newHandler()
	handler.stream = func(_ context.Context, _ *Session, st *Stream) {
		serveUnlessFirst(st, func(*Stream) { t.Error("the stream was served") })
	}
	h := newTestServer(t, overTCP, handler)
	parks := func() *Session {
		s := h.startClient(ClientConfig{Connections: 1}).awaitSession(t)
		beginParking(t, s)
		wait.Until(t, "a parked connection", func() bool { return usable(s) > 0 })
		return s
	}
	s, other := parks(), parks()
	own, others := numberOf(s), numberOf(other)
	for name, header := range map[string]OpenHeader{
		"none":            {EndpointID: "e", Sealed: true, PairID: 1 << 40},
		"another's":       {EndpointID: "e", Sealed: true, PairID: others},
		"of a plain call": {EndpointID: "e", PairID: own},
	} {
		b, err := header.encode()
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.links.active[0].mux.Open(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: read %v", name, err)
		}
	}
}

// numberOf returns the number of a parked connection.
func numberOf(s *Session) uint64 {
	pool := s.links.active[0].pairs
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for id := range pool.parked {
		return id
	}
	return 0
}

// TestPair_DeliversWhatWasEndedBeforeItsLink holds that the end of a link does not cut what is unread of a
// stream that both sides have ended, as when an agent stops after its last answer.
func TestPair_DeliversWhatWasEndedBeforeItsLink(t *testing.T) {
	t.Parallel()
	forEachOpener(t, func(t *testing.T, s *Session, near, far *Stream) {
		const size = 64 << 10
		_, err := far.Write(make([]byte, size))
		if err := errors.Join(err, far.CloseWrite(), near.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_ = far.Close()
		wait.Until(t, "the end of the stream", near.st.HasEnded)
		s.abort(net.ErrClosed)
		wait.Receive(t, "the end of its link", near.link.ctx.Done())
		if b, err := io.ReadAll(near); err != nil || len(b) != size {
			t.Errorf("%d of %d bytes, %v", len(b), size, err)
		}
		for isEnded, st := range map[bool]*mux.Stream{true: near.st, false: {}} {
			tcp, _ := tcpEnds(t)
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				newPair(&link{ctx: ctx, pairs: newTestPool(clientParked)}, st, TuneConn(tcp).(*tunedConn))
				cancel()
				if synctest.Wait(); isClosed(tcp) == isEnded {
					t.Errorf("both sides have ended it: %v, the link's end has closed it: %v", isEnded, !isEnded)
				}
				time.Sleep(pairEndTimeout)
				if synctest.Wait(); !isClosed(tcp) {
					t.Error("the connection stays")
				}
			})
		}
	})
}
