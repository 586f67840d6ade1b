// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
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
