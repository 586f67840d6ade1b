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

// countingDialer counts dials, which take a while even if their context ends, and may fail.
type countingDialer struct {
	dial func(context.Context, string, string) (net.Conn, error)

	mu        sync.Mutex
	takes     time.Duration
	failing   bool
	made, now int
	most      int // at a time, since the last call of set
}

func (d *countingDialer) set(takes time.Duration, failing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes, d.failing, d.made, d.most = takes, failing, 0, 0
}

func (d *countingDialer) counts() (made, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made, d.most
}

func (d *countingDialer) DialContext(_ context.Context, network, addr string) (net.Conn, error) {
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

// withTwoConnections runs a test with a forwarder's session of two connections, in a synctest
// bubble.
func withTwoConnections(t *testing.T, test func(t *testing.T, h *testServer, d *countingDialer, s sessionPair)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		d := &countingDialer{dial: h.dial}
		s := sessionPair{client: h.startClient(ClientConfig{DialContext: d.DialContext}).awaitSession(t),
			server: <-h.handler.ups}
		s.awaitConnections(t, 2)
		test(t, h, d, s)
	})
}

func TestConnManager_DialsMissingConnectionsTogether(t *testing.T) {
	withTwoConnections(t, func(t *testing.T, _ *testServer, d *countingDialer, s sessionPair) {
		d.set(time.Second, false)
		s.client.legs.handleConnections(maxConnections)
		time.Sleep(4*time.Second + time.Millisecond) // 14 in four goes
		s.awaitConnections(t, maxConnections)
		time.Sleep(20 * time.Second)
		if made, most := d.counts(); made != maxConnections-2 || most != maxPendingDials {
			t.Errorf("%d connections were dialled, up to %d at a time", made, most)
		}
	})
}

func TestConnManager_DialsNoMoreThanDesired(t *testing.T) {
	withTwoConnections(t, func(t *testing.T, _ *testServer, d *countingDialer, s sessionPair) {
		d.set(time.Second, false)
		s.client.legs.handleConnections(4)
		time.Sleep(500 * time.Millisecond)
		s.client.legs.handleConnections(5) // while they are on their way
		for range 100 {
			wake(s.client.legs.connsChanged)
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		s.awaitConnections(t, 5)
		if made, most := d.counts(); made != 3 || most != 3 {
			t.Errorf("%d connections were dialled, up to %d at a time", made, most)
		}
	})
}

func TestConnManager_BacksOffAfterFailedDials(t *testing.T) {
	withTwoConnections(t, func(t *testing.T, _ *testServer, d *countingDialer, s sessionPair) {
		d.set(time.Second, true)
		s.client.legs.handleConnections(maxConnections)
		time.Sleep(3 * time.Second)
		if _, most := d.counts(); most != maxPendingDials {
			t.Errorf("up to %d dials at a time, want %d", most, maxPendingDials)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		d.set(time.Second, true)
		for range 15 {
			time.Sleep(20 * time.Second)
			s.client.legs.handleConnections(maxConnections)
		}
		// Each takes a second and a wait of 5 s on average: about 50.
		if made, most := d.counts(); most != 1 || made > 100 {
			t.Errorf("%d dials in 5 minutes of failure, up to %d at a time", made, most)
		}
		d.set(0, false)
		time.Sleep(12 * time.Second)
		s.awaitConnections(t, maxConnections)
	})
}

func TestConnManager_LeavesNoConnectionOfEndedSession(t *testing.T) {
	withTwoConnections(t, func(t *testing.T, h *testServer, d *countingDialer, s sessionPair) {
		d.set(5*time.Second, false)
		s.client.legs.handleConnections(maxConnections)
		synctest.Wait()
		if _, most := d.counts(); most != maxPendingDials {
			t.Fatalf("%d connections are being dialled, want %d", most, maxPendingDials)
		}
		h.closeConns(0, 1)
		<-s.client.Done()
		next := sessionPair{server: <-h.handler.ups}
		time.Sleep(time.Minute)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if welcome, over := len(h.resumed), len(h.errs); welcome-over != 2 || openLinks(next.server) != 2 {
			t.Errorf("%d connections live, and the next session has %d, want 2", welcome-over, openLinks(next.server))
		}
	})
}
