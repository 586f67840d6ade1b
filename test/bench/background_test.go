// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// pacedRate is that of each of four streams which leave the CPU time to spare: half of two
// processors, so that these are not what small messages wait for.
const pacedRate = 30e6

// pingPong sends small messages over a quiet chain, beside bulk that takes what CPU there is, and
// beside bulk that does not.
func (r *chainBench) pingPong() {
	r.reportProgress("1 KB ping-pong, quiet and beside others")
	for _, c := range r.chains {
		quiet, err := pingPong(c.tcp, r.size.pings)
		if err != nil {
			r.b.Fatalf("%s: %v", c.name, err)
		}
		r.report.add("1 KB ping-pong: p50", "ms", goal{over: plain, most: 2}, c.name, median(quiet))
		r.report.add("1 KB ping-pong: p99", "ms", goal{}, c.name, quantile(quiet, 0.99))
		for _, x := range []struct {
			name        string
			rate        int64
			pings       int
			p50, slower goal
		}{
			// Endless streams take all CPU there is: what waits then waits for the scheduler, in
			// every chain.
			{"beside 4 bulk streams", 0, 125, goal{over: plain, most: 1}, goal{}},
			{"beside 4 paced streams", pacedRate, 4 * r.size.pings, goal{}, goal{most: 3}},
		} {
			var beside []float64
			before := machineCPU(r.b)
			carried, err := runBesideBulk(c.tcp, x.rate, 64<<20, func() (err error) {
				beside, err = pingPong(c.tcp, x.pings)
				return err
			})
			if err != nil {
				r.b.Fatalf("%s: %s: %v", c.name, x.name, err)
			}
			r.report.add(x.name+": p50", "ms", x.p50, c.name, median(beside))
			r.report.add(x.name+" / quiet: p50", "times", x.slower, c.name, median(beside)/median(quiet))
			r.report.add(x.name+": these carry", "MB/s", goal{}, c.name, carried)
			r.report.add(x.name+": the machine's CPU", "%", goal{}, c.name, machineCPU(r.b).since(before))
		}
	}
}

// runBesideBulk runs f while four streams are under way, two each way: as fast as they can, or at
// so many bytes a second each. f begins when they have moved settled bytes. It returns how much
// they carried meanwhile, in MB/s.
func runBesideBulk(addr string, rate, settled int64, f func() error) (carried float64, err error) {
	var conns []*net.TCPConn
	var moving sync.WaitGroup
	var moved atomic.Int64
	broken := make(chan error, 4)
	defer moving.Wait()
	defer func() {
		for _, c := range conns {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}()
	const endless = 1 << 40
	for i := range cap(broken) {
		up, down := int64(endless), int64(1)
		if i%2 == 1 {
			up, down = 0, endless
		}
		c, err := dialUpstreamWith(addr, uint64(up), uint64(down), uint64(rate))
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
		moving.Go(func() { broken <- streamPaced(c, up > 0, rate, &moved) })
	}
	for moved.Load() < settled {
		select {
		case err := <-broken:
			return 0, fmt.Errorf("a stream beside broke: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
	before, began := moved.Load(), time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	carried = float64(moved.Load()-before) / 1e6 / time.Since(began).Seconds()
	select {
	case err := <-broken:
		return 0, fmt.Errorf("a stream beside broke: %w", err)
	default:
		return carried, nil
	}
}

// streamPaced reads or writes until that fails.
func streamPaced(c *net.TCPConn, up bool, rate int64, moved *atomic.Int64) error {
	pace := pacer{rate: rate}
	buf := make([]byte, pace.step())
	for {
		move := c.Read
		if up {
			move = c.Write
		}
		n, err := move(buf)
		if err != nil {
			return err
		}
		moved.Add(int64(n))
		if up {
			pace.wait(n)
		}
	}
}

// pacer keeps a sender to a rate, which makes up for one step at most when it is late: nothing runs
// ahead, nothing comes in bursts.
type pacer struct {
	rate int64 // bytes a second; 0 = no bound
	due  time.Time
}

// step is how many bytes to send at a time.
func (p *pacer) step() int64 {
	if p.rate == 0 {
		return 256 << 10
	}
	return 64 << 10
}

// wait waits after n bytes until the next ones are due.
func (p *pacer) wait(n int) {
	if p.rate == 0 {
		return
	}
	now, takes := time.Now(), time.Duration(float64(n)/float64(p.rate)*float64(time.Second))
	if late := now.Add(-takes); p.due.Before(late) {
		p.due = late
	}
	p.due = p.due.Add(takes)
	time.Sleep(p.due.Sub(now))
}

// cpuTimes are those of the whole machine, in ticks.
type cpuTimes struct{ busy, all float64 }

func machineCPU(b testing.TB) (t cpuTimes) {
	b.Helper()
	stat, err := os.ReadFile("/proc/stat")
	must.Succeed(b, err)
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line)[1:9] { // what guests use is in user time, too
		ticks, err2 := strconv.ParseFloat(field, 64)
		err = errors.Join(err, err2)
		t.all += ticks
		if i != 3 && i != 4 { // idle, waiting for a disk
			t.busy += ticks
		}
	}
	must.Succeed(b, err)
	return t
}

// since returns how busy the machine was, in percent.
func (t cpuTimes) since(before cpuTimes) float64 {
	return 100 * (t.busy - before.busy) / max(1, t.all-before.all)
}
