// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestStream_ReadDeadline(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	s := agentPair(t, overTCP, func(st *Stream) {
		_ = st.Accept()
		<-more
		_, _ = st.Write(make([]byte, 4<<20)) // more than the window
		_ = st.CloseWrite()
	})
	st := open(t, s)
	_ = st.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := st.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read before the deadline: %v", err)
	}
	reading := make(chan error, 1)
	_ = st.SetReadDeadline(time.Time{})
	go func() {
		_, err := st.Read(make([]byte, 1))
		reading <- err
	}()
	for interrupted := false; !interrupted; { // also a read in progress, however late it begins
		_ = st.SetReadDeadline(time.Unix(1, 0))
		select {
		case err := <-reading:
			interrupted = true
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("an interrupted read returned %v", err)
			}
		case <-time.After(time.Millisecond):
		}
	}
	var ne net.Error
	if _, err := st.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("read %v after the deadline", err)
	}
	close(more)
	total := 0
	for buf := make([]byte, 100_000); ; { // with a deadline that keeps passing: no byte and no window update gets lost
		_ = st.SetReadDeadline(time.Now().Add(50 * time.Microsecond))
		n, err := st.Read(buf)
		total += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if total != 4<<20 {
		t.Fatalf("received %d bytes", total)
	}
}

func TestStream_ExpiredDeadlineKeepsSendWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 3 << 20 // of a window of 1 MiB
		s := agentPair(t, overPipe, func(st *Stream) {
			_ = st.Accept()
			_, _ = st.Write(make([]byte, size))
			_ = st.CloseGracefully(time.Minute)
		})
		st := open(t, s)
		_ = st.SetReadDeadline(time.Now().Add(time.Second))
		first, err := st.Next()
		if err != nil {
			t.Fatal(err)
		}
		began := len(first)
		_ = st.SetReadDeadline(time.Time{})
		time.Sleep(2 * time.Second)
		if b, err := io.ReadAll(st); err != nil || began+len(b) != size {
			t.Fatalf("received %d and %d bytes, %v", began, len(b), err)
		}
		_ = st.CloseWrite()
	})
}

func TestStream_WaitOpenedEndsWithContext(t *testing.T) {
	t.Parallel()
	accept := make(chan struct{})
	s := agentPair(t, overPipe, func(st *Stream) {
		<-accept
		echo(st)
	})
	st := open(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := st.WaitOpened(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("WaitOpened: %v", err)
	}
	close(accept)
	for range 2 {
		if err := st.WaitOpened(timeoutContext(t)); err != nil {
			t.Fatalf("WaitOpened again: %v", err)
		}
	}
	_, _ = io.WriteString(st, "x")
	if _, err := st.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the interrupted wait left a deadline behind: %v", err)
	}
}

func TestStream_NextLendsReceivedBytes(t *testing.T) {
	t.Parallel()
	s := agentPair(t, overPipe, echo)
	st := open(t, s)
	for _, word := range []string{"one", "two"} {
		_, _ = io.WriteString(st, word)
		if b, err := st.Next(); err != nil || string(b) != word {
			t.Fatalf("got %q, %v, want %q", b, err, word)
		}
	}
	_ = st.CloseWrite()
	if b, err := st.Next(); !errors.Is(err, io.EOF) || len(b) > 0 {
		t.Fatalf("got %q, %v at the end", b, err)
	}
	_ = st.Close()
	aborted := open(t, s)
	_ = aborted.Abort()
	if _, err := aborted.Next(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("an aborted stream is readable: %v", err)
	}
}

func TestStream_CloseGracefullyDeliversWrittenBytes(t *testing.T) {
	t.Parallel()
	s := agentPair(t, overPipe, func(st *Stream) {
		_ = st.Accept()
		_, _ = st.Write(make([]byte, 1<<20))
		_ = st.CloseGracefully(time.Minute)
	})
	st := open(t, s)
	if b, err := io.ReadAll(st); err != nil || len(b) != 1<<20 {
		t.Fatalf("received %d bytes: %v", len(b), err)
	}
	_ = st.CloseWrite()
}
