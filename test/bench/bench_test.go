// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

var (
	out   = flag.String("out", "", "write the figures to this file, as JSON")
	quick = flag.Bool("quick", false, "fewer rounds, less of everything: two minutes")
	check = flag.String("check", "",
		"fail when a goal is missed, or a score is worse than in this file; see report.check")
	only     = flag.String("only", "", "the cases that match this expression")
	profiles = flag.String("profiles", "", "write CPU profiles of all processes to this folder")
)

// loadSize are the numbers of rounds, connections, messages and bytes that are measured.
type loadSize struct {
	rounds, setUps, concurrent, pings, idle, requests int
	bulk                                              int64
}

// chainBench is one run.
type chainBench struct {
	b      *testing.B
	size   loadSize
	report *report
	chains []*chain // of tcp
	webs   []*chain // of http
	round  int      // that is being measured; 0 = before the first
}

// BenchmarkChain prints the table. One iteration is the whole measurement.
func BenchmarkChain(b *testing.B) {
	cases, err := regexp.Compile(*only)
	must.Succeed(b, err)
	r := &chainBench{b: b, report: &report{Machine: thisMachine(), Quick: *quick}, size: loadSize{
		rounds: 5, setUps: 200, concurrent: 2000, pings: 2000, idle: 5000, requests: 10_000, bulk: 300 << 20}}
	if *quick {
		r.size = loadSize{rounds: 3, setUps: 100, concurrent: 500, pings: 500, idle: 500, requests: 2000,
			bulk: 80 << 20}
	}
	needs(b, 2*r.size.idle+1000) // the upstream's ends are this process', too
	keys, err := makeKeys()
	must.Succeed(b, err)
	up := serveUpstreams(b)
	if cases.MatchString("idle") {
		r.idleConnections(keys, up)
		r.idlePairs(keys, up)
	}
	r.start(keys, up)
	carrier, sealed := r.carrier(keys, up), r.sealed(keys, up)
	for round := range r.size.rounds {
		r.round = round + 1
		for _, c := range []struct {
			name    string
			measure func()
		}{{"bulk", r.bulk}, {"setup", r.setUp}, {"ping", r.pingPong}, {"http", r.http},
			{"carrier", carrier}, {"sealed", sealed}} {
			if cases.MatchString(c.name) {
				c.measure()
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	if len(r.report.Rows) == 0 {
		b.Fatalf("no case matches %q: there are idle, bulk, setup, ping, http, carrier and sealed", *only)
	}
	baseline := r.baseline()
	r.report.print(os.Stdout)
	if *out != "" {
		must.Succeed(b, r.report.save(*out))
	}
	if *check != "" {
		for _, wrong := range r.report.check(baseline) {
			b.Error(wrong)
		}
	}
}

// baseline returns the report that the run is compared with, besides the goals; nil, with the
// reason logged, if there is none.
func (r *chainBench) baseline() *report {
	if *check == "" {
		return nil
	}
	baseline, err := loadReport(*check)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("\nthere is no baseline: only the goals count")
		return nil
	}
	must.Succeed(r.b, err)
	if unlike := r.report.differences(baseline); len(unlike) > 0 {
		fmt.Printf("\nthe baseline cannot be compared with this run, only the goals count: %s\n",
			strings.Join(unlike, "; "))
		return nil
	}
	return baseline
}

// reportProgress prints what is being measured.
func (r *chainBench) reportProgress(what string) {
	if r.round == 0 {
		progress("%s", what)
	} else {
		progress("round %d of %d: %s", r.round, r.size.rounds, what)
	}
}

// start starts the chains and warms them: caches, tickets, second connections.
func (r *chainBench) start(keys string, up upstreams) {
	r.reportProgress("starting the chains")
	for _, name := range []string{ours, rawTLS, plain} {
		r.chains = append(r.chains, startChain(r.b, name, keys, up))
	}
	r.webs = r.chains[:1]
	if c := startHAProxy(r.b, "http", keys, up.http); c != nil {
		r.webs = append(r.webs[:1:1], c)
	} else {
		r.report.Notes = append(r.report.Notes, "haproxy is not installed: http has nothing to be compared with")
	}
	for _, c := range r.chains {
		if _, err := setUps(c.tcp, 50, 10); err != nil {
			r.b.Fatalf("%s: %v", c.name, err)
		}
	}
	for _, c := range r.webs {
		if err := requests(c.http, 50, 10, true); err != nil {
			r.b.Fatalf("%s: %v", c.name, err)
		}
	}
}

func (r *chainBench) bulk() {
	for _, upwards := range []bool{false, true} {
		for _, streams := range []int{1, 16} {
			name := fmt.Sprintf("%s, %d stream(s)", map[bool]string{false: "down", true: "up"}[upwards], streams)
			r.reportProgress(name)
			for _, c := range r.chains {
				cpu, took := c.busy(r.b, func() error { return bulk(c.tcp, upwards, r.size.bulk, streams) })
				gb := float64(r.size.bulk) / 1e9
				r.report.add(name+": CPU", "s/GB", goal{over: rawTLS, most: 1.20}, c.name, cpu.Seconds()/gb)
				r.report.add(name+": throughput", "MB/s", goal{over: rawTLS, least: 0.90}, c.name,
					gb*1000/took.Seconds())
			}
		}
	}
}

func (r *chainBench) setUp() {
	for _, s := range []struct {
		name          string
		n, concurrent int
		time, cpu     goal
	}{
		{"set-up, sequential", r.size.setUps, 1, goal{over: plain, most: 1.4}, goal{over: rawTLS}},
		{"set-up, 64 concurrent", r.size.concurrent, 64, goal{over: plain, most: 1.1}, goal{over: rawTLS, most: 0.2}},
		{"set-up, 256 concurrent", r.size.concurrent, 256, goal{over: plain}, goal{over: rawTLS}},
	} {
		r.reportProgress(s.name)
		for _, c := range r.chains {
			var each []float64
			cpu, took := c.busy(r.b, func() (err error) {
				each, err = setUps(c.tcp, s.n, s.concurrent)
				return err
			})
			r.report.add(s.name+": p50", "ms", s.time, c.name, median(each))
			r.report.add(s.name+": p99", "ms", goal{}, c.name, quantile(each, 0.99))
			r.report.add(s.name+": rate", "1/s", goal{}, c.name, float64(s.n)/took.Seconds())
			r.report.add(s.name+": CPU of one", "ms", s.cpu, c.name, ms(cpu)/float64(s.n))
		}
	}
}

// idleConnections has chains of its own, whose memory nothing has used before.
func (r *chainBench) idleConnections(keys string, up upstreams) {
	for _, name := range []string{ours, rawTLS} {
		r.reportProgress(fmt.Sprintf("%d idle connections: %s", r.size.idle, name))
		c := startChain(r.b, name, keys, up)
		if _, err := setUps(c.tcp, 50, 10); err != nil {
			r.b.Fatalf("%s: %v", name, err)
		}
		before := map[string]float64{}
		for _, p := range c.parts {
			before[p.part] = p.memory(r.b)
		}
		conns, err := idle(c.tcp, r.size.idle, 1)
		if err != nil {
			r.b.Fatalf("%s: %d idle connections: %v", name, len(conns), err)
		}
		time.Sleep(2 * time.Second) // what is in use for a moment is given back
		for _, p := range c.parts {
			most := 40.0
			if p.part == "edge" {
				most = 55
			}
			r.report.add("idle connection: "+p.part, "kB", goal{most: most}, name,
				(p.memory(r.b)-before[p.part])/float64(len(conns)))
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

func (r *chainBench) http() {
	r.reportProgress("http, one request after the other")
	for _, c := range r.webs {
		each, err := pingHTTP(c.http, r.size.pings)
		must.Succeed(r.b, err)
		r.report.add("http, one request after the other: p50", "ms", goal{over: haproxy, most: 1}, c.name, median(each))
	}
	for _, keep := range []bool{true, false} {
		name, n, most := "http, 64 connections kept", r.size.requests, 1.1
		if !keep {
			name, most = "http, one connection a request", 1.6
		}
		r.reportProgress(name)
		for _, c := range r.webs {
			cpu, took := c.busy(r.b, func() error { return requests(c.http, n, 64, keep) })
			r.report.add(name+": rate", "1/s", goal{over: haproxy, least: 0.5}, c.name, float64(n)/took.Seconds())
			r.report.add(name+": CPU of one", "ms", goal{over: haproxy, most: most}, c.name, ms(cpu)/float64(n))
		}
	}
}
