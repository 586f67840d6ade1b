// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// dataFrames returns the data frames among frames, as "stream:bytes".
func dataFrames(frames []frame) (s []string) {
	for _, f := range frames {
		if f.kind == typeData && f.length > 0 {
			s = append(s, fmt.Sprintf("%d:%d", f.id, f.length))
		}
	}
	return s
}

func TestSession_SmallFramesPassBulk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, streams := newGatedSession(t, 12)
		bulk := startCall("Write", write(streams[0], make([]byte, 250<<10)))
		bulk.wantBlocked(t)
		if got := dataFrames(g.begun(t)[0]); len(got) != 1 {
			t.Fatalf("the first write has data frames %v", got)
		}
		want := map[string]bool{}
		for i, st := range streams[1:] {
			c := startCall("a small Write", write(st, make([]byte, 100+i)))
			// It may return at once or wait; its frame must be in the next write.
			synctest.Wait()
			want[fmt.Sprintf("%d:%d", st.ID(), 100+i)] = true
			defer func() { c.wantError(t, nil) }()
		}
		second := dataFrames(g.next(t)) // all of them at once, with or before the second frame of the bulk
		for i, got := range second {
			if i < len(want) && !want[got] {
				t.Errorf("frame %d of the second write is %s", i, got)
			}
			delete(want, got)
		}
		if len(want) > 0 {
			t.Errorf("%v did not go out together: %v", want, second)
		}
		for g.next(t) != nil {
		}
		bulk.wantError(t, nil)
	})
}

func TestSession_BulkStreamsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, streams := newGatedSession(t, 3)
		var calls []*call
		for _, st := range streams {
			calls = append(calls, startCall("Write", write(st, randomBytes(int(st.ID()), 4*maxFrame-1))))
			synctest.Wait()
		}
		var all []frame
		for frames := g.begun(t)[0]; frames != nil; frames = g.next(t) {
			all = append(all, frames...)
		}
		var order []uint32
		for _, f := range all {
			if f.kind == typeData {
				order = append(order, f.id)
			}
		}
		// Between two frames of a stream there is at most one of each other, while all have some.
		for i := range len(order) - 3 {
			seen := map[uint32]bool{order[i]: true, order[i+1]: true, order[i+2]: true}
			if i < 3*3 && len(seen) < 3 {
				t.Errorf("the streams do not take turns: %v", order)
				break
			}
		}
		for i, c := range calls {
			c.wantError(t, nil)
			if got, want := payload(all, streams[i].ID()), randomBytes(int(streams[i].ID()),
				4*maxFrame-1); !bytes.Equal(got,
				want) {
				t.Errorf("stream %d: other bytes than were written", streams[i].ID())
			}
		}
	})
}

func TestStream_ResetWhileWaitingForTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, streams := newGatedSession(t, 4)
		var calls []*call
		for _, st := range streams {
			calls = append(calls, startCall("Write", write(st, make([]byte, 3*maxFrame))))
			synctest.Wait()
		}
		noError(t, "Reset", streams[2].Reset(5))
		calls[2].wantError(t, net.ErrClosed)
		closing := startCall("CloseWrite", func() (int, error) { return 0, streams[3].CloseWrite() })
		synctest.Wait()
		var all []frame
		for frames := g.begun(t)[0]; frames != nil; frames = g.next(t) {
			all = append(all, frames...)
		}
		closing.wantError(t, nil)
		for i, c := range calls[:2] {
			if n, err := c.wantResult(t); n != 3*maxFrame || err != nil {
				t.Errorf("Write of stream %d: %d, %v", i, n, err)
			}
		}
		if n, err := calls[3].wantResult(t); (err != nil && !errors.Is(err, net.ErrClosed)) ||
			n != len(payload(all, streams[3].ID())) {
			t.Errorf("Write = %d, %v; %d bytes went out", n, err, len(payload(all, streams[3].ID())))
		}
		after := map[uint32]bool{}
		for _, f := range all {
			if after[f.id] && f.kind != typePing {
				t.Errorf("%v after the end or the reset of its stream", f)
			}
			after[f.id] = after[f.id] || f.flags&(flagFIN|flagRST) != 0
			if f.flags&flagRST != 0 && (f.id != streams[2].ID() || f.length != 5) {
				t.Errorf("%v is not the reset that was asked for", f)
			}
		}
		if !after[streams[2].ID()] || !after[streams[3].ID()] {
			t.Error("the reset or the end did not go out")
		}
	})
}

func TestSession_OpenSendsFirstBytesInOneWrite(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 64, 4 << 10, 64 << 10} {
		synctest.Test(t, func(t *testing.T) {
			a, b := pipe(0)
			t.Cleanup(func() { _ = b.Close() })
			g := newGate(a)
			g.open.Store(true)
			s := newSession(t, g, mux.Config{Client: true, KeepAlive: time.Hour})
			first := randomBytes(8, size)
			st, err := s.Open(t.Context(), first)
			noError(t, "Open", err)
			writes := g.begun(t)
			if len(writes) != 1 || writes[0][0].flags&flagSYN == 0 || !bytes.Equal(payload(writes[0], st.ID()), first) {
				t.Errorf("opening with %d bytes: writes %v", size, writes)
			}
		})
	}
}

// TestSession_OpenDoesNotWaitForBulk checks that a SYN is sent as a small frame.
func TestSession_OpenDoesNotWaitForBulk(t *testing.T) {
	t.Parallel()
	withGate(t, func(t *testing.T, g *gate, s *mux.Session, st *mux.Stream) {
		bulk := startCall("Write", write(st, make([]byte, 200<<10)))
		bulk.wantBlocked(t)
		_ = g.begun(t)
		opening := startCall("Open", func() (int, error) {
			_, err := s.Open(t.Context(), []byte("first"))
			return 0, err
		})
		opening.wantError(t, nil)
		if got := payload(g.next(t), st.ID()+2); string(got) != "first" {
			t.Errorf("the write after the first frame of the bulk has %q for the new stream", got)
		}
		for g.next(t) != nil {
		}
		bulk.wantError(t, nil)
	})
}

// TestSession_OpenWaitsWhenMuchIsQueued checks that Open waits while the connection is slower than
// its callers.
func TestSession_OpenWaitsWhenMuchIsQueued(t *testing.T) {
	t.Parallel()
	withGate(t, func(t *testing.T, g *gate, s *mux.Session, st *mux.Stream) {
		bulk := startCall("Write", write(st, make([]byte, 60<<10)))
		bulk.wantBlocked(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		opening := startCall("Open", func() (int, error) {
			for n := 0; ; n++ {
				if _, err := s.Open(ctx, make([]byte, 4<<10)); err != nil {
					return n, err
				}
			}
		})
		opening.wantBlocked(t)
		if q := s.Queued(); q < 60<<10 || q > 2<<20 {
			t.Errorf("%d bytes are queued", q)
		}
		cancel()
		n, err := opening.wantResult(t)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Open: %v", err)
		}
		if n < 8 || n > 256 {
			t.Errorf("%d openings of 4 KiB were taken", n)
		}
		g.open.Store(true)
		g.pass <- struct{}{}
		time.Sleep(lazily)
		bulk.wantError(t, nil)
		if q := s.Queued(); q != 0 {
			t.Errorf("%d bytes are queued when all is written", q)
		}
		wantAlive(t, s)
	})
}

// withGate runs a test with a stream of a session whose writes wait for the test.
func withGate(t *testing.T, f func(t *testing.T, g *gate, s *mux.Session, st *mux.Stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(0)
		t.Cleanup(func() { _ = b.Close() })
		g := newGate(a)
		g.open.Store(true)
		s := newSession(t, g, mux.Config{Client: true, KeepAlive: time.Hour, Timeout: time.Hour})
		st, err := s.Open(t.Context(), nil)
		noError(t, "Open", err)
		_ = g.begun(t)
		g.open.Store(false)
		f(t, g, s, st)
	})
}
