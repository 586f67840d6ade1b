// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

func TestStream_ResetWakesReads(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		for what, wait := range map[string]func(*mux.Stream) error{
			"Read": func(st *mux.Stream) error { _, err := st.Read(make([]byte, 9)); return err },
			"Next": func(st *mux.Stream) error { _, err := st.Next(); return err },
		} {
			a, b := openStream(t, client, server, "")
			mine := startCall(what, func() (int, error) { return 0, wait(a) })
			theirs := startCall("the peer's "+what, func() (int, error) { return 0, wait(b) })
			mine.wantBlocked(t)
			theirs.wantBlocked(t)
			noError(t, "Reset", b.Reset(9))
			theirs.wantError(t, net.ErrClosed)
			_, err := mine.wantResult(t)
			wantReset(t, what, err, 9)
		}
	})
}

func TestStream_CloseWriteWakesWrite(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "")
		sent := randomBytes(5, 2<<20)
		c := startCall("Write", write(a, sent))
		c.wantBlocked(t)
		closing := startCall("CloseWrite", func() (int, error) { return 0, a.CloseWrite() })
		synctest.Wait()
		got, err := io.ReadAll(b)
		n, werr := c.wantResult(t)
		closing.wantError(t, nil)
		// The waiting Write may finish or fail; but an EOF before all its bytes must not look like
		// success.
		switch {
		case err != nil:
			t.Errorf("reading: %v", err)
		case !bytes.Equal(got, sent[:len(got)]):
			t.Error("what was read is not what was sent")
		case werr == nil && (n != len(sent) || len(got) != n):
			t.Errorf("Write = %d, nil, and %d bytes arrived", n, len(got))
		case werr != nil && (werr != net.ErrClosed || n != len(got)): //nolint:errorlint // the contract says: bare
			t.Errorf("Write = %d, %v, and %d bytes arrived", n, werr, len(got))
		}
	})
}

func TestStream_ReleaseResetsOpenStream(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "abc")
		a.Release()
		synctest.Wait()
		_, err := io.Copy(io.Discard, b)
		wantReset(t, "Read after the peer's Release", err, 0)
		_, err = b.Write([]byte("x"))
		wantReset(t, "Write after the peer's Release", err, 0)
		b.Release()

		// One direction has ended.
		a, b = openStream(t, client, server, "abc")
		noError(t, "CloseWrite", a.CloseWrite())
		synctest.Wait()
		a.Release()
		synctest.Wait()
		_, err = b.Write([]byte("x"))
		wantReset(t, "Write after the peer's Release", err, 0)
		b.Release()
		synctest.Wait()
		if n, m := client.NumStreams(), server.NumStreams(); n != 0 || m != 0 {
			t.Errorf("%d and %d streams remain", n, m)
		}
		wantAlive(t, client)
		wantAlive(t, server)
	})
}

func TestSession_AcceptsBytesForEndedStreams(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		for range 20 {
			a, b := openStream(t, client, server, "")
			c := startCall("Write", write(a, make([]byte, 2<<20)))
			c.wantBlocked(t)
			noError(t, "Reset", b.Reset(3))
			b.Release()
			_, err := c.wantResult(t)
			wantReset(t, "Write", err, 3)
			a.Release()
		}
		synctest.Wait()
		if n := client.Queued(); n != 0 {
			t.Errorf("%d bytes are still queued", n)
		}
		wantAlive(t, client)
		wantAlive(t, server)
	})
}

// TestSession_ConcurrentUse has a reader, a writer and closers on each of many streams. The race
// detector looks on.
func TestSession_ConcurrentUse(t *testing.T) {
	t.Parallel()
	for _, tcp := range []bool{false, true} {
		var x, y mux.Conn
		if tcp {
			a, b := loopback(t)
			x, y = &wire{Conn: a}, &wire{Conn: b}
		} else {
			x, y = pipe(100 << 10)
		}
		client, server := newSession(t, x, mux.Config{Client: true}), newSession(t, y, mux.Config{})
		var wg sync.WaitGroup
		server.Serve(func(st *mux.Stream) { useConcurrently(t, &wg, st, 2, 1) })
		client.Serve(func(st *mux.Stream) { useConcurrently(t, &wg, st, 1, 2) })
		for range 80 {
			for side, s := range []*mux.Session{client, server} {
				mine, yours := 1+side, 2-side
				first := randomBytes(mine, 500)
				st, err := s.Open(t.Context(), first)
				noError(t, "Open", err)
				useConcurrently(t, &wg, st, mine, yours, first...)
			}
		}
		wg.Wait()
		wantAlive(t, client)
		wantAlive(t, server)
	}
}

// useConcurrently reads from a stream, writes to it and ends it concurrently. Each side sends
// random bytes of its own seed.
func useConcurrently(t *testing.T, wg *sync.WaitGroup, st *mux.Stream, mine, yours int, first ...byte) {
	sent := randomBytes(mine, 200<<10)
	wg.Go(func() { readAndCompare(t, st, randomBytes(yours, 200<<10)) })
	wg.Go(func() {
		r := rand.New(rand.NewPCG(uint64(st.ID()), uint64(mine)))
		for p := sent[len(first):]; len(p) > 0; {
			n, err := st.Write(p[:min(len(p), 1+r.IntN(1<<r.IntN(17)))])
			if p = p[n:]; err != nil {
				wantExpectedError(t, "Write", err)
				return
			}
		}
		wantExpectedError(t, "CloseWrite", cmp.Or(st.CloseWrite(), net.ErrClosed))
	})
	wg.Go(func() {
		for range st.ID() % 64 { // some later than others
			runtime.Gosched()
		}
		switch st.ID() / 2 % 5 {
		case 0:
			_ = st.CloseWrite()
		case 1:
			_ = st.Reset(st.ID())
		case 2:
			_ = st.CloseWrite()
			_ = st.Reset(st.ID())
		case 3:
			_ = st.SetReadDeadline(time.Now().Add(time.Hour))
			_ = st.SetWriteDeadline(time.Now().Add(time.Hour))
		}
	})
}

// readAndCompare reads to the end, with Read and Next, and compares.
func readAndCompare(t *testing.T, st *mux.Stream, want []byte) {
	defer st.Release()
	p := make([]byte, 20<<10)
	for i := 0; ; i++ {
		var err error
		var got []byte
		if i%2 == 0 {
			var n int
			n, err = st.Read(p)
			got = p[:n]
		} else {
			got, err = st.Next()
		}
		if !bytes.HasPrefix(want, got) {
			t.Errorf("stream %d: what was read is not what was sent", st.ID())
			return
		}
		want = want[len(got):]
		if err != nil {
			wantExpectedError(t, "reading", err)
			return
		}
	}
}

func wantExpectedError(t *testing.T, what string, err error) {
	t.Helper()
	var r *mux.ResetError
	if err != io.EOF && err != net.ErrClosed && !errors.As(err, &r) { //nolint:errorlint // the contract says: bare
		t.Errorf("%s: %v", what, err)
	}
}
