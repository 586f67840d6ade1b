// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestBufferSize_FitsClosely(t *testing.T) {
	t.Parallel()
	sizes := make(map[int]int)
	for n := minBuffer; n <= maxBuffer; n++ {
		number, size := bufferSize(n)
		if was, ok := sizes[number]; size < n || size > n+n/buffersPerDoubling || ok && was != size {
			t.Fatalf("%d bytes: number %d has %d bytes, before %d", n, number, size, was)
		}
		sizes[number] = size
	}
	if len(sizes) != bufferSizes || sizes[0] != minBuffer || sizes[bufferSizes-1] != maxBuffer {
		t.Errorf("%d sizes, from %d to %d", len(sizes), sizes[0], sizes[bufferSizes-1])
	}
}

// sendExchanges records count exchanges, each with a body of its own of size bytes in pieces of
// piece bytes, and waits until they are parsed.
func sendExchanges(t *testing.T, r *Recorder, w *wire, count, size, piece int) {
	t.Helper()
	for i := range count {
		w.client(fmt.Sprintf("GET /%d HTTP/1.1\r\n\r\n", i))
		w.server(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size))
		for body := bodyOf(i, size); body != ""; {
			n := min(piece, len(body))
			w.server(body[:n])
			body = body[n:]
		}
		if r.queued.Load() > maxQueued/2 {
			r.drain()
		}
	}
	r.drain()
}

// bodyOf returns size bytes that differ from those of the exchanges before and after.
func bodyOf(i, size int) string {
	return strings.Repeat(fmt.Sprintf("%08d", i), size/8+1)[:size]
}

// TestRecorder_RecyclesBodies checks that the memory of exchanges which leave the list is used for
// those that come. It counts allocations, so it is not parallel.
func TestRecorder_RecyclesBodies(t *testing.T) {
	const size, count = 16 << 10, 1000
	r := newRecorder(t)
	w := newWire(r, 0)
	sendExchanges(t, r, w, 2*maxRecords, size, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sendExchanges(t, r, w, count, size, size)
	runtime.ReadMemStats(&after)
	ofTest := uint64(2 * size) // bodyOf and wire
	if perExchange := (after.TotalAlloc - before.TotalAlloc) / count; perExchange > ofTest+size {
		t.Errorf("%d bytes are allocated for an exchange of %d, %d of them by the test", perExchange, size, ofTest)
	}
}

// TestRecorder_LeavesReadBodiesAlone checks that what a reader has got does not change when the
// exchange leaves the list, and that recycled memory shows in no other exchange.
func TestRecorder_LeavesReadBodiesAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, piece int }{
		{100, 100}, {600, 600}, {3000, 3000}, {10_000, 10_000}, {100_000, 40_000}, {100_000, 65_536}, {5000, 700},
	} {
		t.Run(fmt.Sprint(c.size, c.piece), func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			w := newWire(r, 0)
			var read []*Exchange
			for range 3 {
				sendExchanges(t, r, w, maxRecords, c.size, c.piece)
				for _, e := range read {
					checkBody(t, e, c.size)
				}
				_ = r.List(Filter{Text: "00000007"})
				for _, e := range r.List(Filter{}) {
					if got, ok := r.Get(e.ID); ok && len(got.Request.URL)%2 == 0 {
						checkBody(t, got, c.size)
						read = append(read, got)
					}
				}
			}
		})
	}
}

func checkBody(t *testing.T, e *Exchange, size int) {
	t.Helper()
	var i int
	_, _ = fmt.Sscanf(e.Request.URL, "/%d", &i)
	if want := bodyOf(i, size); !bytes.Equal(e.Response.Body, []byte(want)) || e.Response.Truncated {
		t.Fatalf("%s has the body %.20q…, want %.20q…", e.Request.URL, e.Response.Body, want)
	}
}
