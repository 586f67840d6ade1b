// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// benchmarkedAgent is set for a process that is an agent: "off" or "on", the service's address and
// the upstream's.
const benchmarkedAgent = "FAIRLEAD_BENCHMARKED_AGENT"

// runBenchmarkedAgent serves until standard input, which begins with the authority's certificate,
// ends.
func runBenchmarkedAgent() {
	args := strings.Fields(os.Getenv(benchmarkedAgent))
	in := bufio.NewReader(os.Stdin)
	var pem []byte
	for !bytes.HasSuffix(pem, []byte("END CERTIFICATE-----\n")) {
		line, err := in.ReadBytes('\n')
		if err != nil {
			panic(err)
		}
		pem = append(pem, line...)
	}
	config, err := trust.Options{CAPEM: pem}.ClientConfig()
	if err != nil {
		panic(err)
	}
	upstream, err := agent.ParseUpstream("http", args[2])
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	o := agent.Options{
		ServerOptions: agent.ServerOptions{Server: "https://" + args[1], Address: args[1], TLS: config,
			Token: func() string { return "flt_test" }},
		Observer: observerFunc(func(agent.Event) {}),
		Endpoints: []agent.Endpoint{{
			URL: account.EndpointURL{Scheme: "http", Host: "hello.demo", Port: 80}, Binding: "kubernetes",
			Upstream: upstream}}}
	if args[0] == "on" {
		o.Inspect = inspect.New()
	}
	if err := agent.Run(ctx, o); err != nil {
		panic(err)
	}
	if o.Inspect != nil {
		_, _ = fmt.Println(o.Inspect.Dropped(), "bytes were dropped")
	}
}

// otherAgent, if set, is a test binary of this package of another version, whose agent is measured
// beside this one's as "other".
const otherAgent = "FAIRLEAD_BENCH_OTHER_AGENT"

// inspectLoad is a load of which BenchmarkInspect measures the cost.
type inspectLoad struct {
	name           string
	size, requests int // bytes of an answer, answers
	rate           int // requests a second; 0 = as fast as they go
}

// BenchmarkInspect measures the CPU time of an agent, a process of its own, for a request, with the
// inspector off and on: medians of rounds in which they take turns, so that ratios mean something
// where figures do not. At a rate below the inspector's limits, where every request is recorded
// whole, the agents run at the same time.
func BenchmarkInspect(b *testing.B) {
	for _, l := range []inspectLoad{{"200B", 200, 20_000, 0}, {"10kB", 10_000, 15_000, 0}, {"4MiB", 4 << 20, 500, 0},
		{"200B-paced", 200, 12_000, 400}, {"10kB-paced", 10_000, 12_000, 400}} {
		b.Run(l.name, func(b *testing.B) {
			for b.Loop() {
				compareInspectors(b, l)
			}
		})
	}
}

func compareInspectors(b *testing.B, l inspectLoad) {
	const rounds = 7
	variants := []string{"off", "on"}
	if os.Getenv(otherAgent) != "" {
		variants = append(variants, "other")
	}
	cpu, ratios := make(map[string][]time.Duration), make(map[string][]float64)
	for i := range rounds {
		round := make([]time.Duration, len(variants))
		var running sync.WaitGroup
		for j := range variants {
			at := (i + j) % len(variants)
			running.Go(func() { round[at] = benchmarkInspect(b, variants[at], l) })
			if l.rate == 0 {
				running.Wait()
			}
		}
		running.Wait()
		for j, v := range variants {
			cpu[v] = append(cpu[v], round[j])
			ratios[v] = append(ratios[v], float64(round[j])/float64(round[0]))
		}
	}
	for _, v := range variants {
		slices.Sort(cpu[v])
		all := cpu[v]
		b.ReportMetric(float64(all[rounds/2].Nanoseconds())/1000, v+"-us/request")
		b.Logf("%s: median %v, from %v to %v", v, all[rounds/2], all[0], all[rounds-1])
	}
	for _, v := range variants[1:] {
		slices.Sort(ratios[v])
		all := ratios[v]
		b.ReportMetric(all[rounds/2], v+"/off")
		b.Logf("%s/off: median %.3f, from %.3f to %.3f", v, all[rounds/2], all[0], all[rounds-1])
	}
	b.ReportMetric(0, "ns/op")
}

// benchmarkInspect returns the CPU time of an agent for a request. That of its start is in it, the
// same for all.
func benchmarkInspect(b *testing.B, variant string, l inspectLoad) time.Duration {
	upstream, stopUpstream := benchmarkUpstream(b, l.size)
	defer stopUpstream()
	svc := newService(b).start()
	program := os.Args[0]
	if variant == "other" {
		program = os.Getenv(otherAgent)
	}
	cmd := exec.CommandContext(b.Context(), program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", benchmarkedAgent, variant, svc.addr, upstream))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Error(err)
		return 0
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		b.Error(err)
		return 0
	}
	if _, err := in.Write(svc.caPEM); err != nil {
		b.Error(err)
	}
	svc.mayUnbind = true
	load(b, <-svc.bound, l)
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		b.Error(err)
	}
	if text := strings.TrimSpace(out.String()); text != "" && !strings.HasPrefix(text, "0 ") {
		b.Log(text)
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / time.Duration(l.requests)
}

const benchmarkRequest = "GET /items?page=2 HTTP/1.1\r\nHost: hello.demo\r\nUser-Agent: benchmark/1.0\r\n" +
	"Accept: application/json\r\nX-Forwarded-For: 10.0.0.5\r\nX-Forwarded-Host: hello.demo\r\n" +
	"X-Forwarded-Proto: http\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n"

// benchmarkUpstream answers each request of a connection.
func benchmarkUpstream(b *testing.B, size int) (addr string, stop func()) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(b, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				answer := fmt.Appendf(nil,
					"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
				answer = append(answer, bytes.Repeat([]byte("x"), size)...)
				buf := make([]byte, 4<<10)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
						if _, err := c.Write(answer); err != nil {
							return
						}
					}
				}
			})
		}
	})
	return ln.Addr().String(), func() { _ = ln.Close(); serving.Wait() }
}

// load sends requests over 8 streams.
func load(b *testing.B, s *tunnel.Session, l inspectLoad) {
	const streams = 8
	head := len(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", l.size))
	began := time.Now()
	var clients sync.WaitGroup
	for i := range streams {
		clients.Go(func() {
			st, err := s.Open(b.Context(), header())
			if err != nil {
				b.Error(err)
				return
			}
			_ = st.SetDeadline(time.Now().Add(10 * time.Minute))
			defer func() { _ = st.CloseGracefully(time.Second) }()
			for n := i; n < l.requests; n += streams {
				if l.rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(l.rate))))
				}
				if _, err := io.WriteString(st, benchmarkRequest); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.CopyN(io.Discard, st, int64(head+l.size)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}
