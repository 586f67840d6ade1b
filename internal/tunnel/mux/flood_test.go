// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// floods are what a peer that reads nothing sends repeatedly; round is the repetition.
var floods = map[string]struct {
	frames func(round uint32) []frame
	ends   bool // the session must end: what it has to answer grows
}{
	"pings": {func(round uint32) []frame {
		return []frame{{kind: typePing, flags: flagSYN, length: round}}
	}, true},
	"openings beyond the limit": {func(round uint32) []frame {
		return []frame{syn(2*round+1, "")}
	}, true},
	"streams that are opened and reset": {func(round uint32) []frame {
		return []frame{syn(2*round+1, ""), {kind: typeWindow, flags: flagRST, id: 2*round + 1}}
	}, true},
	"data of unknown streams": {func(round uint32) []frame {
		return []frame{{kind: typeData, id: 2*round + 1, data: make([]byte, 100)}}
	}, false},
	"answers to no ping": {func(round uint32) []frame {
		return []frame{{kind: typePing, flags: flagACK, length: round}}
	}, false},
	"empty data frames": {func(round uint32) []frame {
		return []frame{{kind: typeData, flags: flagSYN * uint16(1-min(round, 1)), id: 1}}
	}, false},
	"windows of nothing": {func(round uint32) []frame {
		return []frame{{kind: typeWindow, flags: flagSYN * uint16(1-min(round, 1)), id: 1}}
	}, false},
}

// TestSession_EndsOnFlood is not parallel: it measures the heap.
func TestSession_EndsOnFlood(t *testing.T) {
	for what, flood := range floods {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := heapSize()
				a, b := pipe(16 << 10)
				t.Cleanup(func() { _ = b.Close() })
				s := newSession(t, a, mux.Config{MaxStreams: 100})
				s.Serve(func(st *mux.Stream) { st.Release() })
				if what == "openings beyond the limit" {
					s.Serve(func(*mux.Stream) {})
				}
				if what == "empty data frames" || what == "windows of nothing" {
					s.Serve(func(*mux.Stream) {})
				}
				var over bool
				for round := uint32(0); round < 100_000 && !over; round += 100 {
					var frames []frame
					for i := range uint32(100) {
						frames = append(frames, flood.frames(round+i)...)
					}
					_, err := b.Write(bytesOf(frames...))
					over = err != nil
				}
				synctest.Wait()
				if grown := heapSize() - before; grown > 1<<20 {
					t.Errorf("the heap has grown by %d KiB", grown>>10)
				}
				select {
				case <-s.Done():
					if !flood.ends {
						t.Error("the session ended:", s.Err())
					}
				default:
					if flood.ends {
						t.Error("the session lives on")
					}
				}
			})
		})
	}
}

func heapSize() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestRecvBuffer_CostsLessThanTwiceTheWindow is not parallel, either.
func TestRecvBuffer_CostsLessThanTwiceTheWindow(t *testing.T) {
	const streams = 4
	for _, size := range []int{1, 2, 100, 1025, 4097, 8193, 16385, 33000, maxFrame, initialWindow} {
		a, b := pipe(1 << 20)
		s := newSession(t, a, mux.Config{Window: initialWindow, KeepAlive: time.Hour}) // however slow this machine is
		// what the session sends is irrelevant
		go func() {
			p := make([]byte, 4<<10)
			for {
				if _, err := b.Read(p); err != nil {
					return
				}
			}
		}()
		var all []*mux.Stream
		sent := make([]byte, initialWindow)
		frames := make([]byte, 0, (headerSize+1)*initialWindow+headerSize)
		before := heapSize()
		for i := range uint32(streams) {
			frames = append(frames[:0], bytesOf(syn(2*i+1, ""))...)
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), size)
				frames = frame{kind: typeData, id: 2*i + 1, data: rest[:n]}.append(frames)
				rest = rest[n:]
			}
			if _, err := b.Write(frames); err != nil {
				t.Fatal(err)
			}
			st, err := s.Accept()
			noError(t, "Accept", err)
			all = append(all, st)
		}
		_, err := b.Write(bytesOf(syn(2*streams+1, "")))
		noError(t, "Write", err)
		if _, err := s.Accept(); err != nil { // all that was before it has been taken
			t.Fatal(err)
		}
		grown := heapSize() - before
		t.Logf("frames of %d bytes: %d KiB for %d", size, grown>>10, streams*initialWindow>>10)
		if slack := int64(256 << 10); grown > 2*streams*initialWindow+slack {
			t.Errorf("frames of %d bytes: the heap has grown by %d KiB for %d KiB that wait", size, grown>>10,
				streams*initialWindow>>10)
		}
		for _, st := range all {
			readFull(t, st, initialWindow)
		}
		_ = b.Close()
		s.Close(errTestOver)
		runtime.KeepAlive(frames)
		runtime.KeepAlive(sent)
	}
}
