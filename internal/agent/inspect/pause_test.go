// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecorder_ParsesWhenRead checks when chunks are parsed: for a subscriber within drainDelay, for
// another reader when it asks, and at once if many are queued.
func TestRecorder_ParsesWhenRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		defer r.Close()
		w := newWire(r, 0)
		body := strings.Repeat("x", 32<<10)
		n := 0
		send := func(count int) {
			for range count {
				w.client(fmt.Sprintf("POST /%d HTTP/1.1\r\nContent-Length: %d\r\n\r\n", n, len(body)))
				w.client(body)
				w.server("HTTP/1.1 204 No Content\r\n\r\n")
				n++
			}
			synctest.Wait()
		}
		parsed := func() bool { return r.queued.Load() == 0 }
		send(1)
		if send(1); parsed() {
			t.Error("chunks without a reader are parsed at once")
		}
		if got := len(r.List(Filter{})); got != 2 {
			t.Errorf("a reader gets %d of 2 exchanges", got)
		}
		if send(1); parsed() {
			t.Error("chunks after a reader are parsed at once")
		}
		if send(hurryAbove / len(body)); r.queued.Load() > hurryAbove {
			t.Errorf("%d bytes are queued and not parsed", r.queued.Load())
		}
		time.Sleep(2 * unreadDelay)
		_, cancel := r.Subscribe()
		defer cancel()
		send(1)
		send(1)
		time.Sleep(drainDelay)
		if synctest.Wait(); !parsed() {
			t.Errorf("%d bytes are not parsed %s after a subscriber began", r.queued.Load(), drainDelay)
		}
	})
}
