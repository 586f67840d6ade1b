// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// syn returns the frame that opens stream id with data.
func syn(id uint32, data string) frame {
	return frame{kind: typeData, flags: flagSYN, id: id, data: []byte(data)}
}

// newServerWithStreams returns a server's session that has opened stream 2 and accepted stream 1
// with one byte to read.
func newServerWithStreams(t *testing.T) (*mux.Session, *rawPeer, *mux.Stream, *mux.Stream) {
	s, p := hostile(t, mux.Config{})
	p.send(syn(1, "x"))
	theirs, err := s.Accept()
	noError(t, "Accept", err)
	own, err := s.Open(t.Context(), []byte("y"))
	noError(t, "Open", err)
	p.answer(p.frames())
	return s, p, own, theirs
}

func TestSession_EndsOnViolation(t *testing.T) {
	t.Parallel()
	for what, frames := range map[string][]frame{
		"a version that does not exist":    {{version: 1, kind: typePing, flags: flagSYN}},
		"a type that does not exist":       {{kind: 4, id: 1}},
		"another such type":                {{kind: 255, flags: 0xffff, id: 1, length: 1<<32 - 1}},
		"a number of ours":                 {syn(4, "")},
		"the number of a live one of ours": {syn(2, "")},
		"number 0":                         {syn(0, "")},
		"a number twice":                   {syn(1, "")},
		"a number twice, by window update": {syn(3, "a"), {kind: typeWindow, flags: flagSYN, id: 3}},
		"more than the window at once":     {{kind: typeData, id: 1, length: 1<<20 + 1}},
		"as much as a number can say":      {{kind: typeData, id: 1, length: 1<<32 - 1}},
		"more than the window in parts": {{kind: typeData, id: 1, data: make([]byte, 1<<19)},
			{kind: typeData, id: 1, data: make([]byte, 1<<19)},
			{kind: typeData, id: 1, data: make([]byte, 1)}},
		"more than the window with the opening": {{kind: typeData, flags: flagSYN, id: 3, length: 1<<20 + 1}},
		"a window that overflows at once":       {{kind: typeWindow, id: 1, length: 1<<32 - 1}},
		"a window that overflows in parts": {{kind: typeWindow, id: 1, length: 1 << 31},
			{kind: typeWindow, id: 1, length: 1 << 31}},
		"an end":               {{kind: typeGoAway, length: 0}},
		"an end with a reason": {{kind: typeGoAway, length: 2}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, p, own, theirs := newServerWithStreams(t)
				waits := startCall("Read", read(own))
				waits.wantBlocked(t)
				begun := time.Now()
				p.send(frames...)
				_ = awaitEnd(t, s)
				if d := time.Since(begun); d > 0 {
					t.Errorf("it took %v", d)
				}
				_, err := waits.wantResult(t)
				wantBroken(t, "Read", err)
				_, err = theirs.Write([]byte("z"))
				wantBroken(t, "Write", err)
				_, err = s.Open(t.Context(), nil)
				wantBroken(t, "Open", err)
				time.Sleep(lazily)
				if _, err := p.c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Errorf("the connection is not closed: %v", err)
				}
			})
		})
	}
}

func TestSession_ToleratesOddFrames(t *testing.T) {
	t.Parallel()
	for what, frames := range map[string][]frame{
		"data of an unknown stream":        {{kind: typeData, id: 77, data: make([]byte, 100<<10)}},
		"data of a stream of ours to come": {{kind: typeData, id: 1000, data: make([]byte, 100)}},
		"data of stream 0":                 {{kind: typeData, id: 0, data: make([]byte, 100)}},
		"a window of an unknown stream":    {{kind: typeWindow, id: 77, length: 1<<32 - 1}},
		"a reset of an unknown stream":     {{kind: typeWindow, flags: flagRST, id: 77, length: 5}},
		"an end of an unknown stream":      {{kind: typeWindow, flags: flagFIN, id: 77}},
		"an acknowledgement, unknown":      {{kind: typeWindow, flags: flagACK, id: 77}},
		"an acknowledgement, twice": {{kind: typeWindow, flags: flagACK, id: 2},
			{kind: typeWindow, flags: flagACK, id: 2}},
		"an acknowledgement of its own":     {{kind: typeWindow, flags: flagACK, id: 1}},
		"an answer to no ping":              {{kind: typePing, flags: flagACK, length: 12345}},
		"an empty data frame":               {{kind: typeData, id: 1}},
		"an empty window update":            {{kind: typeWindow, id: 1}},
		"a data frame of half a megabyte":   {syn(5, string(make([]byte, 512<<10)))},
		"a stream that is opened and ended": {{kind: typeData, flags: flagSYN | flagFIN, id: 5, data: []byte("all")}},
		"a stream that is opened and reset": {{kind: typeWindow, flags: flagSYN | flagRST, id: 5, length: 9}},
		"all flags at once": {{kind: typeWindow, flags: 15, id: 5, length: 9},
			{kind: typeData, flags: 15, id: 7, data: []byte("x")}},
		"flags that do not exist":  {{kind: typeWindow, flags: 0xfff0, id: 9}},
		"numbers in another order": {syn(9, ""), syn(7, "")},
		"the very last number":     {syn(1<<32-1, "last")},
		"twice the end, then the reset of 5": {syn(5, "a"), {kind: typeWindow, flags: flagFIN, id: 5},
			{kind: typeWindow, flags: flagFIN, id: 5}, {kind: typeWindow, flags: flagRST, id: 5}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, p, own, theirs := newServerWithStreams(t)
				p.send(frames...)
				synctest.Wait()
				wantAlive(t, s)
				// Both streams still work.
				p.send(frame{kind: typeData, id: 1, data: []byte("abc")},
					frame{kind: typeData, id: 2, data: []byte("def")})
				if got := readFull(t, theirs, 4); string(got) != "xabc" {
					t.Errorf("read %q of stream 1", got)
				}
				if got := readFull(t, own, 3); string(got) != "def" {
					t.Errorf("read %q of stream 2", got)
				}
				_, err := theirs.Write([]byte("one"))
				noError(t, "Write", err)
				_, err = own.Write([]byte("two"))
				noError(t, "Write", err)
				got := p.frames()
				if a, b := string(payload(got, 1)), string(payload(got, 2)); a != "one" || b != "two" {
					t.Errorf("sent %q and %q", a, b)
				}
			})
		})
	}
}

func TestStream_IgnoresFramesAfterEnd(t *testing.T) {
	t.Parallel()
	for what, late := range map[string]frame{
		"data":          {kind: typeData, id: 1, data: []byte("late")},
		"another end":   {kind: typeData, flags: flagFIN, id: 1, data: []byte("late")},
		"a window":      {kind: typeWindow, id: 1, length: 5},
		"another reset": {kind: typeWindow, flags: flagRST, id: 1, length: 5},
	} {
		for _, end := range []uint16{flagFIN, flagRST} {
			synctest.Test(t, func(t *testing.T) {
				s, p, _, theirs := newServerWithStreams(t)
				p.send(frame{kind: typeWindow, flags: end, id: 1, length: 0}, late)
				synctest.Wait()
				if s.Err() == nil {
					p.wants(frame{kind: typePing, flags: flagACK, length: 9},
						frame{kind: typePing, flags: flagSYN, length: 9})
				}
				got, err := io.ReadAll(theirs)
				var r *mux.ResetError
				switch {
				case string(got) != "x" && string(got) != "":
					t.Errorf("%s after the end: read %q", what, got)
				case err == nil && (end != flagFIN || string(got) != "x"):
					t.Errorf("%s after the end: %q looks whole", what, got)
				case err != nil && end == flagFIN && s.Err() == nil && !errors.As(err, &r):
					t.Errorf("%s after the end: %v", what, err)
				case err != nil && end == flagRST && !errors.As(err, &r):
					t.Errorf("%s after the reset: %v", what, err)
				}
			})
		}
	}
}

// TestSession_EndsOnTruncatedFrame includes frames with FIN.
func TestSession_EndsOnTruncatedFrame(t *testing.T) {
	t.Parallel()
	whole := bytesOf(frame{kind: typeData, flags: flagFIN, id: 1, data: []byte("0123456789")})
	for cut := range whole {
		synctest.Test(t, func(t *testing.T) {
			s, p, own, theirs := newServerWithStreams(t)
			_, _ = p.c.Write(whole[:cut])
			_ = p.c.Close()
			_ = awaitEnd(t, s)
			got, err := io.ReadAll(theirs)
			wantBroken(t, "Read", err)
			if len(got) > 11 || string(got) != "x0123456789"[:len(got)] {
				t.Errorf("read %q", got)
			}
			_, err = own.Read(make([]byte, 1))
			wantBroken(t, "Read", err)
		})
	}
}

// TestSession_TricklingPeerIsAlive checks that a frame may take longer than the answer to a ping.
func TestSession_TricklingPeerIsAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p, _, theirs := newServerWithStreams(t)
		b := bytesOf(frame{kind: typeData, id: 1, data: randomBytes(10, 64<<10)})
		for len(b) > 0 {
			n := min(len(b), 4<<10)
			_, _ = p.c.Write(b[:n])
			b = b[n:]
			time.Sleep(10 * time.Second)
			wantAlive(t, s)
		}
		readFull(t, theirs, 64<<10+1)
	})
}
