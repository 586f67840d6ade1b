// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/mux"
)

// waiting are the calls that a read deadline ends.
var waiting = map[string]func(*mux.Stream) (int, error){
	"Read": func(st *mux.Stream) (int, error) { return st.Read(make([]byte, 100)) },
	"Next": func(st *mux.Stream) (int, error) { p, err := st.Next(); return len(p), err },
}

func TestStream_ReadDeadline(t *testing.T) {
	t.Parallel()
	for what, wait := range waiting {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
				a, b := stream(t, client, server, "")
				readDeadlines(t, a, b, what, wait)
			})
		})
	}
}

func readDeadlines(t *testing.T, a, b *mux.Stream, what string, wait func(*mux.Stream) (int, error)) {
	next := func() *call { return begin(what, func() (int, error) { return wait(a) }) }

	must(t, "a deadline that has passed", a.SetReadDeadline(time.Now().Add(-time.Second)))
	next().fails(t, os.ErrDeadlineExceeded)
	next().fails(t, os.ErrDeadlineExceeded) // it stays so

	must(t, "a deadline to come", a.SetReadDeadline(time.Now().Add(time.Second)))
	begun := time.Now()
	if _, err := wait(a); err != os.ErrDeadlineExceeded { //nolint:errorlint // the contract says: bare
		t.Errorf("%s: %v", what, err)
	}
	if d := time.Since(begun); d != time.Second {
		t.Errorf("%s waited %v, want 1s", what, d)
	}

	must(t, "none", a.SetReadDeadline(time.Time{}))
	c := next()
	time.Sleep(time.Hour)
	c.waits(t)
	must(t, "one while a call waits", a.SetReadDeadline(time.Now().Add(time.Second)))
	c.waits(t)
	must(t, "a later one while it waits", a.SetReadDeadline(time.Now().Add(time.Minute)))
	time.Sleep(59 * time.Second)
	c.waits(t)
	must(t, "an earlier one while it waits", a.SetReadDeadline(time.Now().Add(time.Millisecond)))
	time.Sleep(time.Millisecond)
	c.fails(t, os.ErrDeadlineExceeded)

	must(t, "one far away", a.SetReadDeadline(time.Now().Add(time.Hour)))
	c = next()
	c.waits(t)
	must(t, "now, while it waits", a.SetReadDeadline(time.Now()))
	c.fails(t, os.ErrDeadlineExceeded)

	// Nothing is lost: the stream is as it was.
	must(t, "none", a.SetReadDeadline(time.Time{}))
	c = next()
	c.waits(t)
	if _, err := b.Write([]byte("abc")); err != nil {
		t.Error("Write:", err)
	}
	n, err := c.result(t)
	must(t, what, err)
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
	inBubble(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := stream(t, client, server, "")
		sent := noise(6, 3<<20)
		done := 0
		next := func() *call { return begin("Write", write(a, sent[done:])) }
		timedOut := func(c *call) {
			t.Helper()
			n, err := c.result(t)
			if err != os.ErrDeadlineExceeded { //nolint:errorlint // the contract says: bare
				t.Errorf("Write: %d, %v", n, err)
			}
			done += n
		}
		must(t, "a deadline that has passed", a.SetWriteDeadline(time.Now().Add(-time.Second)))
		timedOut(next())
		if done != 0 {
			t.Errorf("%d bytes were written after the deadline", done)
		}
		must(t, "a deadline to come", a.SetWriteDeadline(time.Now().Add(time.Second)))
		c := next()
		c.waits(t) // for the window
		time.Sleep(time.Second)
		timedOut(c)
		if done == 0 {
			t.Error("nothing was written before the deadline")
		}
		must(t, "none", a.SetWriteDeadline(time.Time{}))
		c = next()
		time.Sleep(time.Minute)
		c.waits(t)
		must(t, "one while a call waits", a.SetWriteDeadline(time.Now().Add(time.Second)))
		must(t, "a later one while it waits", a.SetWriteDeadline(time.Now().Add(time.Minute)))
		time.Sleep(59 * time.Second)
		c.waits(t)
		must(t, "now, while it waits", a.SetWriteDeadline(time.Now()))
		timedOut(c)

		// What Write said it wrote arrives, and then the rest.
		must(t, "none", a.SetWriteDeadline(time.Time{}))
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
		if n, err := c.result(t); n != len(sent)-done || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	})
}

// TestStream_WriteDeadlineWhileWaitingForTurn: another stream has the connection.
func TestStream_WriteDeadlineWhileWaitingForTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g, streams := gated(t, 3)
		bulk := begin("Write of the first", write(streams[0], make([]byte, 200<<10)))
		bulk.waits(t)
		waits := begin("Write of the second", write(streams[1], make([]byte, 200<<10)))
		waits.waits(t)
		third := begin("Write of the third", write(streams[2], noise(7, 100<<10)))
		third.waits(t)
		must(t, "SetWriteDeadline", streams[1].SetWriteDeadline(time.Now().Add(time.Second)))
		time.Sleep(2 * time.Second)
		waits.fails(t, os.ErrDeadlineExceeded)
		if q := s.Queued(); q < maxFrame || q > 2*maxFrame+1000 {
			t.Errorf("%d bytes are queued for two streams", q)
		}
		var all []frame
		for frames := g.begun(t)[0]; frames != nil; frames = g.next(t) {
			all = append(all, frames...)
		}
		for _, c := range []*call{bulk, third} {
			if _, err := c.result(t); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
		if n := len(payload(all, streams[1].ID())); n != waits.n {
			t.Errorf("%d bytes of the second went out, Write said %d", n, waits.n)
		}
		if got := payload(all, streams[2].ID()); string(got) != string(noise(7, 100<<10)) {
			t.Errorf("%d bytes of the third went out, or others than were written", len(got))
		}
		// What did not go out did not use up the window: but for the byte of the opening all of it is
		// there.
		g.open.Store(true)
		must(t, "SetWriteDeadline", streams[1].SetWriteDeadline(time.Time{}))
		begin("Write", write(streams[1], make([]byte, initialWindow-1-waits.n))).fails(t, nil)
		begin("Write beyond the window", write(streams[1], make([]byte, 1))).waits(t)
	})
}

// gated opens streams over a connection whose writes wait for the test. The peer reads nothing.
func gated(t *testing.T, n int) (*mux.Session, *gate, []*mux.Stream) {
	a, b := pipe(0)
	t.Cleanup(func() { _ = b.Close() })
	g := newGate(a)
	g.open.Store(true)
	s := session(t, g, mux.Config{Client: true, KeepAlive: time.Hour, Timeout: time.Hour})
	var streams []*mux.Stream
	for range n {
		st, err := s.Open(t.Context(), []byte("x"))
		must(t, "Open", err)
		streams = append(streams, st)
	}
	time.Sleep(lazily)
	_ = g.begun(t)
	g.open.Store(false)
	return s, g, streams
}
