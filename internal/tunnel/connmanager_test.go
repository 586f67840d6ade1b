// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// dials counts dials that take a while, whatever their context says, and may fail.
type dials struct {
	dial func(context.Context, string, string) (net.Conn, error)

	mu        sync.Mutex
	takes     time.Duration
	failing   bool
	made, now int
	most      int // at a time, since the last call of set
}

func (d *dials) set(takes time.Duration, failing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes, d.failing, d.made, d.most = takes, failing, 0, 0
}

func (d *dials) seen() (made, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made, d.most
}

func (d *dials) DialContext(_ context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	takes, failing := d.takes, d.failing
	d.made++
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	time.Sleep(takes)
	d.mu.Lock()
	d.now--
	d.mu.Unlock()
	if failing {
		return nil, errors.New("unreachable")
	}
	return d.dial(context.Background(), network, addr)
}

// keeping runs a test with a forwarder's session that has its two connections, in a bubble.
func keeping(t *testing.T, test func(t *testing.T, h *host, d *dials, s ends)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, overPipe, newHandler())
		d := &dials{dial: h.dial}
		s := ends{client: h.connect(ClientConfig{DialContext: d.DialContext}).up(t), server: <-h.handler.ups}
		s.want(t, 2)
		test(t, h, d, s)
	})
}

func TestConnManager_DialsMissingConnectionsTogether(t *testing.T) {
	keeping(t, func(t *testing.T, _ *host, d *dials, s ends) {
		d.set(time.Second, false)
		s.client.handleConnections(maxConnections)
		time.Sleep(4*time.Second + time.Millisecond) // 14 in four goes
		s.want(t, maxConnections)
		time.Sleep(20 * time.Second)
		if made, most := d.seen(); made != maxConnections-2 || most != maxPendingDials {
			t.Errorf("%d connections were dialled, up to %d at a time", made, most)
		}
	})
}

func TestConnManager_DialsNoMoreThanDesired(t *testing.T) {
	keeping(t, func(t *testing.T, _ *host, d *dials, s ends) {
		d.set(time.Second, false)
		s.client.handleConnections(4)
		time.Sleep(500 * time.Millisecond)
		s.client.handleConnections(5) // while they are on their way
		for range 100 {
			s.client.signalConnsChanged()
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		s.want(t, 5)
		if made, most := d.seen(); made != 3 || most != 3 {
			t.Errorf("%d connections were dialled, up to %d at a time", made, most)
		}
	})
}

func TestConnManager_BacksOffAfterFailedDials(t *testing.T) {
	keeping(t, func(t *testing.T, _ *host, d *dials, s ends) {
		d.set(time.Second, true)
		s.client.handleConnections(maxConnections)
		time.Sleep(3 * time.Second)
		if _, most := d.seen(); most != maxPendingDials {
			t.Errorf("up to %d dials at a time, want %d", most, maxPendingDials)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		d.set(time.Second, true)
		for range 15 {
			time.Sleep(20 * time.Second)
			s.client.handleConnections(maxConnections)
		}
		// Each takes a second and a wait of 5 s on average: about 50.
		if made, most := d.seen(); most != 1 || made > 100 {
			t.Errorf("%d dials in 5 minutes of failure, up to %d at a time", made, most)
		}
		d.set(0, false)
		time.Sleep(12 * time.Second)
		s.want(t, maxConnections)
	})
}

func TestConnManager_LeavesNoConnectionOfEndedSession(t *testing.T) {
	keeping(t, func(t *testing.T, h *host, d *dials, s ends) {
		d.set(5*time.Second, false)
		s.client.handleConnections(maxConnections)
		synctest.Wait()
		if _, most := d.seen(); most != maxPendingDials {
			t.Fatalf("%d connections are being dialled, want %d", most, maxPendingDials)
		}
		h.kill(0, 1)
		<-s.client.Done()
		next := ends{server: <-h.handler.ups}
		time.Sleep(time.Minute)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if welcome, over := len(h.resumed), len(h.errs); welcome-over != 2 || taking(next.server) != 2 {
			t.Errorf("%d connections live, and the next session has %d, want 2", welcome-over, taking(next.server))
		}
	})
}
