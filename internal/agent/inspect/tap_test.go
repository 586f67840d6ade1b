// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// loopStream is a stream whose peer sends what a test sets.
type loopStream struct {
	net.Conn
	sent []byte
}

func (s *loopStream) Next() ([]byte, error)     { return s.sent, nil }
func (*loopStream) Write(p []byte) (int, error) { return len(p), nil }
func (*loopStream) CloseWrite() error           { return nil }
func (*loopStream) Abort() error                { return nil }

// TestTap_DropsWholeExchanges checks that beyond maxRate an exchange is recorded whole or not at
// all.
func TestTap_DropsWholeExchanges(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	st := &loopStream{}
	tap := r.Tap(st, Info{EndpointID: "ep-1"})
	const count = 5000
	began := time.Now()
	for range count {
		for _, part := range []string{"POST /a HTTP/1.1\r\nContent-Length: 4\r\n\r\nbo", "dy"} {
			st.sent = []byte(part)
			_, _ = tap.Next()
		}
		for _, part := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", "k"} {
			_, _ = tap.Write([]byte(part))
		}
	}
	took := time.Since(began)
	tap.End(nil)
	await(t, r, "end", func() bool { return r.queued.Load() == 0 })
	for _, e := range whole(t, r) {
		if got := summary(e); got != `POST /a "body" -> 200 "ok"` || !e.Done || e.Lost > 0 {
			t.Fatalf("got %s, lost %d", got, e.Lost)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	recorded := r.counts["ep-1"].requests
	if most := maxBurst + 2 + int64(took*maxRate/time.Second); recorded < maxBurst || recorded > most {
		t.Errorf("%d of %d exchanges are recorded, want %d to %d", recorded, count, maxBurst, most)
	}
	if dropped := r.Dropped() == 0; dropped != (recorded == count) {
		t.Errorf("%d bytes are dropped, %d exchanges recorded", r.Dropped(), recorded)
	}
}

// TestTap_DropsExchangesBeyondByteRate checks that large answers are recorded whole or not at all, at
// maxByteRate, and that a flood of bytes does not keep others out for long.
func TestTap_DropsExchangesBeyondByteRate(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	admitted := 0
	at := time.Duration(0)
	for range 1000 { // in one second
		if r.admit(at) {
			admitted++
			r.nextAdmitted.Add(int64(time.Second) * maxBody / maxByteRate) // as queue does
		}
		at += time.Millisecond
	}
	if most := 2 * maxByteRate / maxBody; admitted < maxByteRate/maxBody/2 || admitted > most {
		t.Errorf("%d exchanges of %d bytes are recorded in a second, want at most %d", admitted, maxBody, most)
	}
	r.nextAdmitted.Add(int64(time.Hour))
	r.admit(at)
	if !r.admit(at + 2*time.Second) {
		t.Error("no exchange is recorded 2 s after a flood of bytes")
	}
}

// TestRecorder_ListsInOrder checks that exchanges of connections that become ready together are
// listed in the order in which they began.
func TestRecorder_ListsInOrder(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	r.mu.Lock() // until all are ready, so that they are parsed together
	for i := range 9 {
		st := &loopStream{sent: fmt.Appendf(nil, "GET /%d HTTP/1.1\r\n\r\n", i)}
		_, _ = r.Tap(st, Info{EndpointID: "ep-1"}).Next()
	}
	r.mu.Unlock()
	await(t, r, "requests", func() bool { return len(r.List(Filter{})) == 9 })
	for i, e := range r.List(Filter{}) {
		if want := fmt.Sprintf("/%d", 8-i); e.Request.URL != want {
			t.Errorf("number %d of the list is %s, want %s", i, e.Request.URL, want)
		}
	}
}
