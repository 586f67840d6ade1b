// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestPacer_KeepsRateWithoutCatchingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pacer{rate: 1000}
		began := time.Now()
		expect := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s: after %v, want %v", what, got, want)
			}
		}
		p.wait(100)
		expect("the first step", 0) // the clock begins with it
		for range 10 {
			p.wait(100)
		}
		expect("ten more", time.Second)
		time.Sleep(time.Hour)
		for range 11 {
			p.wait(100)
		}
		expect("eleven after a long pause, of which one makes up for it", time.Hour+2*time.Second)
	})
}

func TestPacer_WithoutRateDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := pacer{}
		p.wait(1 << 40)
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited for %v", took)
		}
	})
}

func TestBackground_StreamsRunBothWays(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]int64{"as fast as they can": 0, "at a rate": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, err := listen(serveUpstream)
			must.Succeed(t, err)
			var pings []float64
			_, err = runBesideBulk(addr, rate, 1<<20, func() (err error) {
				pings, err = pingPong(addr, 3)
				return err
			})
			if err != nil || len(pings) != 3 {
				t.Errorf("%d pings: %v", len(pings), err)
			}
		})
	}
}

func TestBackground_BrokenStreamIsError(t *testing.T) {
	t.Parallel()
	var measured atomic.Bool
	addr, err := listen(func(c *net.TCPConn) { _ = c.Close() })
	must.Succeed(t, err)
	_, err = runBesideBulk(addr, 0, 1<<50, func() error {
		measured.Store(true)
		return nil
	})
	if err == nil || measured.Load() {
		t.Errorf("measured %v, error %v", measured.Load(), err)
	}
}

func TestBackground_CountsEstablishedConnections(t *testing.T) {
	t.Parallel()
	table := strings.Join([]string{
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
		"   0: 0100630A:A1B2 0200630A:1F90 01 00000000:00000000 00:00000000 00000000     0        0 1 1",
		"   1: 0100630A:A1B3 0200630A:1F90 01 00000000:00000000 00:00000000 00000000     0        0 2 1",
		"   2: 0100630A:A1B4 0200630A:1F90 06 00000000:00000000 00:00000000 00000000     0        0 3 1", // TIME_WAIT
		// the port is this end's
		"   3: 0100630A:1F90 0200630A:A1B4 01 00000000:00000000 00:00000000 00000000     0        0 4 1",
		"   4: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5 1", // listens
		"",
	}, "\n")
	if got := countEstablished(table, 8080); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
}

func TestBackground_ClassifiesBrokenStreams(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	addr, err := listen(func(c *net.TCPConn) {
		if served.Add(1) == 2 {
			_ = c.Close()
			return
		}
		serveUpstream(c)
	})
	must.Succeed(t, err)
	if rate, broken := bulkRate(addr, 1<<20, 4); rate <= 0 || len(broken) != 1 {
		t.Errorf("%v MB/s, %d broken: %q", rate, len(broken), broken)
	}
}
