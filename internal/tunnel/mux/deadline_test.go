// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// readCalls are the calls that a read deadline ends.
var readCalls = map[string]func(*mux.Stream) (int, error){
	"Read": func(st *mux.Stream) (int, error) { return st.Read(make([]byte, 100)) },
	"Next": func(st *mux.Stream) (int, error) { p, err := st.Next(); return len(p), err },
}

func TestStream_ReadDeadline(t *testing.T) {
	t.Parallel()
	for what, wait := range readCalls {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
				a, b := openStream(t, client, server, "")
				readDeadlines(t, a, b, what, wait)
			})
		})
	}
}

func readDeadlines(t *testing.T, a, b *mux.Stream, what string, wait func(*mux.Stream) (int, error)) {
	next := func() *call { return startCall(what, func() (int, error) { return wait(a) }) }

	noError(t, "a deadline that has passed", a.SetReadDeadline(time.Now().Add(-time.Second)))
	next().wantError(t, os.ErrDeadlineExceeded)
	next().wantError(t, os.ErrDeadlineExceeded) // it stays so

	noError(t, "a deadline to come", a.SetReadDeadline(time.Now().Add(time.Second)))
	begun := time.Now()
	if _, err := wait(a); err != os.ErrDeadlineExceeded { //nolint:errorlint // the contract says: bare
		t.Errorf("%s: %v", what, err)
	}
	if d := time.Since(begun); d != time.Second {
		t.Errorf("%s waited %v, want 1s", what, d)
	}

	noError(t, "none", a.SetReadDeadline(time.Time{}))
	c := next()
	time.Sleep(time.Hour)
	c.wantBlocked(t)
	noError(t, "one while a call waits", a.SetReadDeadline(time.Now().Add(time.Second)))
	c.wantBlocked(t)
	noError(t, "a later one while it waits", a.SetReadDeadline(time.Now().Add(time.Minute)))
	time.Sleep(59 * time.Second)
	c.wantBlocked(t)
	noError(t, "an earlier one while it waits", a.SetReadDeadline(time.Now().Add(time.Millisecond)))
	time.Sleep(time.Millisecond)
	c.wantError(t, os.ErrDeadlineExceeded)

	noError(t, "one far away", a.SetReadDeadline(time.Now().Add(time.Hour)))
	c = next()
	c.wantBlocked(t)
	noError(t, "now, while it waits", a.SetReadDeadline(time.Now()))
	c.wantError(t, os.ErrDeadlineExceeded)

	// Nothing is lost: the stream is as it was.
	noError(t, "none", a.SetReadDeadline(time.Time{}))
	c = next()
	c.wantBlocked(t)
	if _, err := b.Write([]byte("abc")); err != nil {
		t.Error("Write:", err)
	}
	n, err := c.wantResult(t)
	noError(t, what, err)
	if rest := 3 - n; rest > 0 {
		readFull(t, a, rest)
	}
	if _, err := a.Write([]byte("back")); err != nil {
		t.Error("writing on a stream whose reads had a deadline:", err)
	}
	readFull(t, b, 4)
}

func TestStream_WriteDeadline(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "")
		sent := randomBytes(6, 3<<20)
		done := 0
		next := func() *call { return startCall("Write", write(a, sent[done:])) }
		timedOut := func(c *call) {
			t.Helper()
			n, err := c.wantResult(t)
			if err != os.ErrDeadlineExceeded { //nolint:errorlint // the contract says: bare
				t.Errorf("Write: %d, %v", n, err)
			}
			done += n
		}
		noError(t, "a deadline that has passed", a.SetWriteDeadline(time.Now().Add(-time.Second)))
		timedOut(next())
		if done != 0 {
			t.Errorf("%d bytes were written after the deadline", done)
		}
		noError(t, "a deadline to come", a.SetWriteDeadline(time.Now().Add(time.Second)))
		c := next()
		c.wantBlocked(t) // for the window
		time.Sleep(time.Second)
		timedOut(c)
		if done == 0 {
			t.Error("nothing was written before the deadline")
		}
		noError(t, "none", a.SetWriteDeadline(time.Time{}))
		c = next()
		time.Sleep(time.Minute)
		c.wantBlocked(t)
		noError(t, "one while a call waits", a.SetWriteDeadline(time.Now().Add(time.Second)))
		noError(t, "a later one while it waits", a.SetWriteDeadline(time.Now().Add(time.Minute)))
		time.Sleep(59 * time.Second)
		c.wantBlocked(t)
		noError(t, "now, while it waits", a.SetWriteDeadline(time.Now()))
		timedOut(c)

		// What Write reported as written arrives, and then the rest.
		noError(t, "none", a.SetWriteDeadline(time.Time{}))
		c = next()
		got := make(chan bool)
		go func() {
			p := make([]byte, len(sent))
			_, err := io.ReadFull(b, p)
			got <- err == nil && string(p) == string(sent)
		}()
		if !<-got {
			t.Error("what was read is not what was sent")
		}
		if n, err := c.wantResult(t); n != len(sent)-done || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	})
}

// TestStream_WriteDeadlineWhileWaitingForTurn checks the deadline of a write while another stream
// has the connection.
func TestStream_WriteDeadlineWhileWaitingForTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g, streams := newGatedSession(t, 3)
		bulk := startCall("Write of the first", write(streams[0], make([]byte, 200<<10)))
		bulk.wantBlocked(t)
		waits := startCall("Write of the second", write(streams[1], make([]byte, 200<<10)))
		waits.wantBlocked(t)
		third := startCall("Write of the third", write(streams[2], randomBytes(7, 100<<10)))
		third.wantBlocked(t)
		noError(t, "SetWriteDeadline", streams[1].SetWriteDeadline(time.Now().Add(time.Second)))
		time.Sleep(2 * time.Second)
		waits.wantError(t, os.ErrDeadlineExceeded)
		if q := s.Queued(); q < maxFrame || q > 2*maxFrame+1000 {
			t.Errorf("%d bytes are queued for two streams", q)
		}
		var all []frame
		for frames := g.begun(t)[0]; frames != nil; frames = g.next(t) {
			all = append(all, frames...)
		}
		for _, c := range []*call{bulk, third} {
			if _, err := c.wantResult(t); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
		if n := len(payload(all, streams[1].ID())); n != waits.n {
			t.Errorf("%d bytes of the second went out, Write said %d", n, waits.n)
		}
		if got := payload(all, streams[2].ID()); string(got) != string(randomBytes(7, 100<<10)) {
			t.Errorf("%d bytes of the third went out, or others than were written", len(got))
		}
		// Bytes that were not sent did not use up the window: all of it but the byte of the opening
		// is left.
		g.open.Store(true)
		noError(t, "SetWriteDeadline", streams[1].SetWriteDeadline(time.Time{}))
		startCall("Write", write(streams[1], make([]byte, initialWindow-1-waits.n))).wantError(t, nil)
		startCall("Write beyond the window", write(streams[1], make([]byte, 1))).wantBlocked(t)
	})
}

// newGatedSession opens streams over a connection whose writes wait for the test. The peer reads
// nothing.
func newGatedSession(t *testing.T, n int) (*mux.Session, *gate, []*mux.Stream) {
	a, b := pipe(0)
	t.Cleanup(func() { _ = b.Close() })
	g := newGate(a)
	g.open.Store(true)
	s := newSession(t, g, mux.Config{Client: true, KeepAlive: time.Hour, Timeout: time.Hour})
	var streams []*mux.Stream
	for range n {
		st, err := s.Open(t.Context(), []byte("x"))
		noError(t, "Open", err)
		streams = append(streams, st)
	}
	time.Sleep(lazily)
	_ = g.begun(t)
	g.open.Store(false)
	return s, g, streams
}
