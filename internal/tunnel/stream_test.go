// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

func TestStream_CarriesHeader(t *testing.T) {
	t.Parallel()
	forEachDirection(t, func(t *testing.T, pair func(func(*Stream)) *Session) {
		got := make(chan OpenHeader, 1)
		s := pair(func(st *Stream) {
			got <- st.Header()
			echo(st)
		})
		st := open(t, s)
		want := fullHeader()
		want.Sealed, want.PairID = st.Header().Sealed, st.Header().PairID
		if d := cmp.Diff(want, wait.Receive(t, "the header", got)); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(want, st.Header()); d != "" {
			t.Error(d)
		}
		if st.Session() != s || st.RemoteAddr() == nil || st.LocalAddr() == nil {
			t.Error("the stream does not know where it belongs")
		}
	})
}

func TestStream_ReceiverMayWriteFirst(t *testing.T) {
	t.Parallel()
	forEachDirection(t, func(t *testing.T, pair func(func(*Stream)) *Session) {
		s := pair(func(st *Stream) {
			_ = st.Accept()
			_, _ = io.WriteString(st, "220 hello")
			_, _ = io.Copy(io.Discard, onlyReader{st})
			_ = st.CloseWrite()
		})
		st := open(t, s) // and sends nothing
		banner := make([]byte, 9)
		if _, err := io.ReadFull(st, banner); err != nil || string(banner) != "220 hello" {
			t.Fatalf("banner %q, %v", banner, err)
		}
	})
}

func TestStream_BytesFollowHeaderAtOnce(t *testing.T) {
	t.Parallel()
	accept := make(chan struct{})
	s := agentPair(t, overTCP, func(st *Stream) {
		<-accept
		echo(st)
	})
	st := open(t, s)
	if _, err := io.WriteString(st, "early"); err != nil {
		t.Fatal(err)
	}
	_ = st.CloseWrite()
	close(accept)
	if b, err := io.ReadAll(st); err != nil || string(b) != "early" {
		t.Fatalf("read %q, %v", b, err)
	}
}

func TestStream_HalfClosesFromEitherSide(t *testing.T) {
	t.Parallel()
	forEachDirection(t, func(t *testing.T, pair func(func(*Stream)) *Session) {
		t.Run("opener first", func(t *testing.T) {
			t.Parallel()
			s := pair(func(st *Stream) {
				_ = st.Accept()
				b, _ := io.ReadAll(onlyReader{st})
				_, _ = fmt.Fprintf(st, "got %s", b)
				_ = st.CloseWrite()
			})
			st := open(t, s)
			_, _ = io.WriteString(st, "all")
			if err := st.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(st); err != nil || string(b) != "got all" {
				t.Fatalf("read %q, %v", b, err)
			}
		})
		t.Run("receiver first", func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 1)
			s := pair(func(st *Stream) {
				_ = st.Accept()
				_, _ = io.WriteString(st, "bye")
				_ = st.CloseWrite()
				b, err := io.ReadAll(onlyReader{st})
				got <- fmt.Sprint(string(b), err)
			})
			st := open(t, s)
			if b, err := io.ReadAll(st); err != nil || string(b) != "bye" {
				t.Fatalf("read %q, %v", b, err)
			}
			_, _ = io.WriteString(st, "still here")
			_ = st.CloseWrite()
			if g := wait.Receive(t, "the receiver", got); g != "still here<nil>" {
				t.Fatalf("the receiver read %q", g)
			}
		})
	})
}

func TestStream_AbortIsNeverEOF(t *testing.T) {
	t.Parallel()
	forEachDirection(t, func(t *testing.T, pair func(func(*Stream)) *Session) {
		for name, abort := range map[string]func(*Stream) error{"reset": (*Stream).Abort, "close": (*Stream).Close} {
			t.Run("opener "+name, func(t *testing.T) {
				t.Parallel()
				errs := make(chan error, 1)
				s := pair(func(st *Stream) {
					_ = st.Accept()
					_, err := io.ReadAll(onlyReader{st})
					errs <- err
				})
				st := open(t, s)
				_, _ = io.WriteString(st, "half of")
				if err := st.WaitOpened(timeoutContext(t)); err != nil {
					t.Fatal(err)
				}
				_ = abort(st)
				if err := wait.Receive(t, "the receiver's error", errs); !errors.Is(err, syscall.ECONNRESET) ||
					errors.Is(err, io.EOF) {
					t.Fatalf("the receiver read %v", err)
				}
			})
			t.Run("receiver "+name, func(t *testing.T) {
				t.Parallel()
				s := pair(func(st *Stream) {
					_ = st.Accept()
					_, _ = io.WriteString(st, "half of")
					_ = abort(st)
				})
				st := open(t, s)
				if err := st.WaitOpened(timeoutContext(t)); err == nil {
					_, err = io.ReadAll(st)
					if !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
						t.Fatalf("the opener read %v", err)
					}
				} else if !errors.Is(err, syscall.ECONNRESET) { // the reset may overtake OPENED
					t.Fatal(err)
				}
				if _, err := st.Write(make([]byte, 1)); err == nil {
					t.Fatal("wrote to an aborted stream")
				}
			})
		}
	})
}

func TestStream_RefusalCarriesCode(t *testing.T) {
	t.Parallel()
	for code := RefusedUnknownEndpoint; code <= RefusedHeader; code++ {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			s := agentPair(t, overPipe, func(st *Stream) { _ = st.Refuse(code) })
			var refused *RefusedError
			if err := open(t, s).WaitOpened(timeoutContext(t)); !errors.As(err, &refused) || refused.Code != code {
				t.Errorf("WaitOpened: %v", err)
			}
			st := open(t, s)
			for range 2 { // and for good
				if _, err := st.Read(make([]byte, 1)); !errors.As(err, &refused) || refused.Code != code {
					t.Errorf("Read: %v", err)
				}
			}
		})
	}
}

func TestStream_ResetAfterOpenedIsNoRefusal(t *testing.T) {
	t.Parallel()
	aborting := make(chan struct{})
	s := agentPair(t, overTCP, func(st *Stream) {
		_ = st.Accept()
		<-aborting
		_ = st.Reset(RefusedUpstream)
	})
	st := open(t, s)
	if err := st.WaitOpened(timeoutContext(t)); err != nil {
		t.Fatal(err)
	}
	close(aborting)
	_, err := st.Read(make([]byte, 1))
	var reset *ResetError
	if !errors.As(err, &reset) || reset.Code != RefusedUpstream {
		t.Fatalf("read %v", err)
	}
}

func TestStream_UnansweredIsRefused(t *testing.T) {
	t.Parallel()
	s := agentPair(t, overPipe, func(*Stream) {})
	var refused *RefusedError
	if err := open(t, s).WaitOpened(timeoutContext(t)); !errors.As(err, &refused) || refused.Code != RefusedInternal {
		t.Fatalf("WaitOpened: %v", err)
	}
}

func TestStream_AnswersOnce(t *testing.T) {
	t.Parallel()
	errs := make(chan error, 3)
	s := agentPair(t, overPipe, func(st *Stream) {
		errs <- st.Accept()
		errs <- st.Accept()
		errs <- st.Refuse(RefusedOffline)
	})
	st := open(t, s)
	if err := wait.Receive(t, "an answer", errs); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := wait.Receive(t, "an answer", errs); err == nil {
			t.Error("answered twice")
		}
	}
	if st.Accept() == nil || st.Refuse(RefusedOffline) == nil {
		t.Error("the opener answered")
	}
}

func TestStream_TransfersBytesUnchanged(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, transport string) {
		size := int64(64 << 20)
		if transport == overPipe {
			size = 8 << 20
		}
		st := open(t, agentPair(t, transport, echo))
		sent := make(chan []byte, 1)
		go func() {
			h := sha256.New()
			random := io.LimitReader(rand.NewChaCha8([32]byte{1}), size)
			_, err := io.CopyBuffer(onlyWriter{io.MultiWriter(st, h)}, onlyReader{random}, make([]byte, 100_000))
			if err = errors.Join(err, st.CloseWrite()); err != nil {
				t.Errorf("sending: %v", err)
			}
			sent <- h.Sum(nil)
		}()
		h := sha256.New()
		n, err := io.CopyBuffer(onlyWriter{h}, onlyReader{st}, make([]byte, 70_000))
		if err != nil || n != size || !bytes.Equal(h.Sum(nil), wait.Receive(t, "the sender", sent)) {
			t.Fatalf("received %d bytes, error %v, or other bytes than were sent", n, err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStream_SlowReaderStallsOnlyItself(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{Connections: 1, Hello: agentHello,
		OnStream: func(_ context.Context, _ *Session, st *Stream) {
			if st.Header().EndpointID == "slow" {
				_ = st.Accept()
				<-release
				_, _ = io.Copy(io.Discard, onlyReader{st})
				_ = st.CloseWrite()
				return
			}
			echo(st)
		}})
	r.awaitSession(t)
	s := wait.Receive(t, "the session", h.handler.ups)
	slow, err := s.Open(t.Context(), OpenHeader{EndpointID: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	_ = slow.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	n, err := slow.Write(make([]byte, 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n > 16<<20 {
		t.Fatalf("wrote %d bytes to a reader that does not read: %v", n, err)
	}
	fast := open(t, s)
	go func() {
		_, _ = fast.Write(make([]byte, 8<<20))
		_ = fast.CloseWrite()
	}()
	if b, err := io.ReadAll(fast); err != nil || len(b) != 8<<20 {
		t.Fatalf("a neighbour received %d bytes: %v", len(b), err)
	}
	close(release)
	_ = slow.SetWriteDeadline(time.Time{})
	if err := slow.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(slow); err != nil {
		t.Fatal(err)
	}
}

func TestSession_ThousandsOfStreamsOnOneConnection(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{Connections: 1})
	s := r.awaitSession(t)
	const n = 2000
	streams := make([]*Stream, n)
	for i := range streams { // all of them at once
		streams[i] = open(t, s)
	}
	for i, st := range streams {
		if err := st.WaitOpened(timeoutContext(t)); err != nil {
			t.Fatalf("stream %d of %d: %v", i, n, err)
		}
	}
	if got := s.Streams(); got != n {
		t.Errorf("%d streams are counted", got)
	}
}

func TestSession_ThousandConcurrentShortStreams(t *testing.T) {
	t.Parallel()
	forEachDirection(t, func(t *testing.T, pair func(func(*Stream)) *Session) {
		s := pair(echo)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				st, err := s.Open(t.Context(), OpenHeader{EndpointID: "e"})
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = st.Close() }()
				want := fmt.Sprintf("stream %d", i)
				_, _ = io.WriteString(st, want)
				_ = st.CloseWrite()
				if b, err := io.ReadAll(onlyReader{st}); err != nil || string(b) != want {
					t.Errorf("stream %d: %q, %v", i, b, err)
				}
			})
		}
		wg.Wait()
		if n := s.Streams(); n != 0 {
			t.Errorf("%d streams are counted after the last one", n)
		}
	})
}
