// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// benchVariable asks for TestRatios.
const benchVariable = "FAIRLEAD_REPLICAS_BENCH"

// cpu returns the CPU time that the servers' processes have used.
func (r *rig) cpu() (sum time.Duration) {
	r.t.Helper()
	const scheduled = 2 // a clock that has nanoseconds, of the process whose id's complement is in the bits above three
	for _, s := range r.replicas {
		var used unix.Timespec
		must.Succeed(r.t, unix.ClockGettime(int32(^s.cmd.Process.Pid<<3|scheduled), &used))
		sum += time.Duration(used.Nano())
	}
	return sum
}

// cpuPerRequest sends requests over kept connections, so many at a time, and returns the servers'
// CPU time for each.
func (r *rig) cpuPerRequest(workers int, targets ...*target) time.Duration {
	r.t.Helper()
	const requests = 8400
	before := r.cpu()
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := range requests / workers {
				if err := targets[(worker+i)%len(targets)].request(r.t.Context()); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return (r.cpu() - before) / time.Duration(requests)
}

// cpuPerRequestAt is like cpuPerRequest for requests at a rate that leaves the machine idle time,
// so that servers do not wait for each other's turns; it returns what one server's rest costs, too,
// as a share of a core.
func (r *rig) cpuPerRequestAt(perSecond int, targets ...*target) (request time.Duration, rest float64) {
	r.t.Helper()
	const measured = 10 * time.Second
	before := r.cpu()
	time.Sleep(measured)
	rest = (r.cpu() - before).Seconds() / measured.Seconds() / float64(len(r.replicas))
	before = r.cpu()
	l := startLoad(r.t, perSecond, targets...)
	time.Sleep(measured)
	l.stop()
	for _, o := range l.all() {
		if o.err != nil {
			r.t.Error(o.err)
		}
	}
	return (r.cpu() - before) / time.Duration(len(l.all())), rest
}

// atReplicas returns kept targets at the public listeners of servers.
func (c *chain) atReplicas(servers ...int) (all []*target) {
	for _, i := range servers {
		all = append(all, c.publicAt("http", c.r.replicas[i].http)[0])
	}
	return all
}

// TestRatios prints what replicas cost beside one server, and their latencies.
func TestRatios(t *testing.T) {
	if os.Getenv(benchVariable) == "" {
		t.Skip("make bench-replicas runs it")
	}
	one, three, relaying := startRig(t, 1), startRig(t, 3), startRig(t, 3)
	chainOne, chainThree, chainRelaying := one.startChain(-1, -1), three.startChain(-1, -1), relaying.startChain(0, -1)
	three.waitLegs(chainThree.agent)
	alone, direct, relayed := chainOne.atReplicas(0), chainThree.atReplicas(0, 1, 2), chainRelaying.atReplicas(1, 2)
	// Three servers with a store each: what several processes cost on the same cores.
	apart, separate := &rig{t: t}, []*target(nil)
	for range 3 {
		r := startRig(t, 1)
		separate = append(separate, r.startChain(-1, -1).atReplicas(0)...)
		apart.replicas = append(apart.replicas, r.replicas...)
	}
	var sameTotal, inTurn, threeToOne, apartToOne, threeToApart, relayedToDirect []float64
	for round := range 6 {
		a, spread := one.cpuPerRequest(8, alone...), three.cpuPerRequest(8, direct...)
		turn := three.cpuPerRequest(8, direct[round%len(direct)])
		d, b := three.cpuPerRequest(24, direct...), relaying.cpuPerRequest(24, relayed...)
		s := apart.cpuPerRequest(24, separate...)
		if round == 0 {
			continue // warms caches up
		}
		t.Logf("CPU a request: one server %s, one of three in turn %s, three with its load together %s, each %s, "+
			"three that are no replicas %s, relayed %s", a, turn, spread, d, s, b)
		inTurn = append(inTurn, float64(turn)/float64(a))
		sameTotal = append(sameTotal, float64(spread)/float64(a))
		threeToOne = append(threeToOne, float64(d)/float64(a))
		apartToOne = append(apartToOne, float64(s)/float64(a))
		threeToApart = append(threeToApart, float64(d)/float64(s))
		relayedToDirect = append(relayedToDirect, float64(b)/float64(d))
	}
	for _, g := range slices.Concat(alone, direct, separate, relayed) {
		g.closeIdle()
	}
	for _, ratios := range [][]float64{sameTotal, inTurn, threeToOne, apartToOne, threeToApart, relayedToDirect} {
		slices.Sort(ratios)
	}
	t.Logf("one of three servers at a time / one, the same load: median %.2f of %.2f (target 1.10)", inTurn[2], inTurn)
	t.Logf("three servers / three that are no replicas, the same load of each: median %.2f of %.2f (target 1.10)",
		threeToApart[2], threeToApart)
	t.Logf("three servers / one, the same load of each: median %.2f of %.2f; three that are no replicas / one: "+
		"median %.2f of %.2f", threeToOne[2], threeToOne, apartToOne[2], apartToOne)
	t.Logf("three servers / one, the same load together: median %.2f of %.2f", sameTotal[2], sameTotal)
	t.Logf("relayed / direct, CPU a request: median %.2f of %.2f (target 1.6)", relayedToDirect[2], relayedToDirect)
	t.Logf("share relayed with three servers: %v streams (target 0)", three.relayed())
	const perServer = 200
	a, restAlone := one.cpuPerRequestAt(perServer, alone...)
	d, restThree := three.cpuPerRequestAt(3*perServer, direct...)
	t.Logf("at %d requests a second of each server: one %s, three %s, ratio %.2f (target 1.10); rest: %.2f %% and "+
		"%.2f %% of a core for a server", perServer, a, d, float64(d)/float64(a), 100*restAlone, 100*restThree)
	events := three.eventLatencies([]*watcher{three.startWatcher(1, 0), three.startWatcher(2, 0)}, 200)
	t.Logf("event at another server: %s (target p99 50 ms)", newQuantiles(events))
	cuts, answers := three.startSite(t).revocationLatencies(t, 60)
	t.Logf("revocation, end of a stream: %s (target p50 10 ms, p99 50 ms); answer: %s", cuts, answers)
}
