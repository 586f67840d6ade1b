// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	wanDelay = 40 * time.Millisecond // one way
	wanRate  = 200e6 / 8             // bytes a second
	direct   = "direct"              // TCP over the same link, without anything between

	// The congestion controls of the two halves.
	bbr   = "bbr"
	cubic = "cubic" // and the processes cannot get another one
)

// wanCase is a link, and what is moved over it.
type wanCase struct {
	congestion string
	loss       float64
	rounds     int
	order      wanOrder
}

// wanCases has bbr and cubic, without loss and with it: then a connection with cubic carries a
// hundredth of the rate, and there is less to move; enough for the session to have grown when its
// one stream ends.
func wanCases() []wanCase {
	much, less, rounds := wanOrder{Count: 20, Bulk1: 60 << 20, Bulk16: 120 << 20, Settled: 64 << 20},
		wanOrder{Count: 20, Bulk1: 6 << 20, Bulk16: 48 << 20, Settled: 1 << 20}, 3
	if *quick {
		much, less, rounds = wanOrder{Count: 5, Bulk1: 20 << 20, Bulk16: 40 << 20, Settled: 64 << 20},
			wanOrder{Count: 5, Bulk1: 5 << 20, Bulk16: 24 << 20, Settled: 1 << 20}, 1
	}
	return []wanCase{{bbr, 0, rounds, much}, {bbr, 0.01, rounds, much}, {cubic, 0, rounds, much},
		{cubic, 0.01, rounds, less}}
}

func (c wanCase) String() string { return fmt.Sprintf("%s, %.0f %% loss", c.congestion, 100*c.loss) }

// BenchmarkWAN has the agent and its upstream behind a link of 80 ms; forwarder, server and client
// are on its other side. Every case has a link and processes of its own: what a session has learnt
// of one link does not help it on the next.
func BenchmarkWAN(b *testing.B) {
	matching, err := regexp.Compile(*only)
	must.Succeed(b, err)
	needsLink(b, []string{bbr, cubic})
	r := &report{Machine: thisMachine(), Quick: *quick}
	for _, c := range wanCases() {
		if matching.MatchString(c.String()) {
			b.Run(strings.ReplaceAll(c.String(), " ", "_"), func(b *testing.B) { c.measure(b, r) })
		}
	}
	if len(r.Rows) == 0 && !b.Failed() {
		b.Fatalf("no case matches %q: there are %v", *only, wanCases())
	}
	r.print(os.Stdout)
	if *out != "" {
		must.Succeed(b, r.save(*out))
	}
	if *check != "" {
		for _, wrong := range r.check(nil) {
			b.Error(wrong)
		}
		return
	}
	for _, x := range r.Rows { // whether a session grows is no matter of speed
		if strings.HasSuffix(x.Name, connectionsRow) && x.verdict() == "MISSED" {
			b.Errorf("%s: %s", x.Name, x.goalText())
		}
	}
}

const connectionsRow = "connections of the session"

func (c wanCase) measure(b *testing.B, r *report) {
	b.ReportMetric(0, "ns/op")
	l := newLink(b, c.congestion, wanDelay, wanRate, c.loss)
	upstream := spawnIn(b, l.far, "wan", "upstream", "", "").told[0]
	_, port, err := net.SplitHostPort(upstream)
	must.Succeed(b, err)
	i, err := parseInstallation(spawnIn(b, l.near, ours, "edge", "", b.TempDir()+" "+nearIP+":0").told[1])
	must.Succeed(b, err)
	edge := i.Server
	i.TCP, i.HTTP = "127.0.0.1:"+port, "http://127.0.0.1:"+port
	agent := spawnIn(b, l.far, ours, "agent", "", i.String())
	entry := spawnIn(b, l.near, ours, "forwarder", "", strings.Join(agent.told[1:], " ")).told[0]
	for round := range c.rounds {
		for _, way := range []struct {
			name, addr string
		}{{ours, entry}, {direct, net.JoinHostPort(directFarIP, port)}} {
			progress("%s, round %d of %d: %s", c, round+1, c.rounds, way.name)
			c.order.Addr = way.addr
			l.fullestSecond()
			told := spawnIn(b, l.near, "wan", "client", "", c.order.String()).told
			var got wanResult
			must.Succeed(b, json.Unmarshal([]byte(strings.Join(told, " ")), &got))
			if len(got.Broken) > 0 {
				r.Notes = append(r.Notes, fmt.Sprintf("%s, %s: %d streams broke; the first: %s", c, way.name,
					len(got.Broken),
					got.Broken[0]))
				b.Error(r.Notes[len(r.Notes)-1])
			}
			c.add(r, way.name, got, l.fullestSecond())
			if way.name == ours {
				r.add(c.String()+": "+connectionsRow, "number", c.goals().connections, ours,
					float64(agent.connectionsTo(b, edge)))
			}
		}
	}
}

// wanGoals are those of a case.
type wanGoals struct{ setUp, bulk1, bulk16, slower, connections goal }

func (c wanCase) goals() wanGoals {
	g := wanGoals{bulk1: goal{over: direct}, bulk16: goal{over: direct}}
	switch {
	case c.congestion == bbr && c.loss == 0:
		g.setUp.most, g.slower.most = ms(2*wanDelay)+5, 3
	case c.congestion == bbr:
		g.bulk1.least, g.bulk16.least, g.slower.most = 0.7, 0.9, 3
	case c.loss > 0:
		g.connections.least = 12
	}
	return g
}

func (c wanCase) add(r *report, way string, got wanResult, fullest float64) {
	g, at := c.goals(), c.String()+": "
	r.add(at+"set-up to first answer, p50", "ms", g.setUp, way, got.SetUp)
	r.add(at+"1 stream", "MB/s", g.bulk1, way, got.Bulk1)
	r.add(at+"16 streams", "MB/s", g.bulk16, way, got.Bulk16)
	r.add(at+"1 KB ping-pong, p50", "ms", goal{}, way, got.Quiet)
	if got.Beside > 0 {
		r.add(at+"beside 4 bulk streams, p50", "ms", goal{}, way, got.Beside)
		r.add(at+"beside 4 bulk streams / quiet, p50", "times", g.slower, way, got.Beside/got.Quiet)
	}
	r.add(at+"the link's fullest second", "%", goal{}, way, fullest)
	if way == direct && c.congestion == bbr && c.loss == 0 && fullest < 90 {
		r.Notes = append(r.Notes,
			fmt.Sprintf(
				"the emulated link carried at most %.0f %% of its rate, for connections without a chain: this "+
					"machine is too "+
					"busy for it", fullest))
	}
}
