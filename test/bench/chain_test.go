// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	bulkBytes  = 300 << 20 // moved for one figure, over all streams
	bulkRounds = 3
	setUps     = 100 // connections for one figure
	setRounds  = 5
)

// chain is three processes between client and upstream.
type chain struct {
	name  string
	parts []*process
	entry string
}

// splitNext takes an agent's "edge upstream" apart.
func splitNext(next string) (string, string) {
	edge, upstream, _ := strings.Cut(next, " ")
	return edge, upstream
}

func startChain(b *testing.B, name, keys, upstream string) *chain {
	b.Helper()
	c := &chain{name: name}
	part := func(role, next string) string {
		p := spawn(b, name+" "+role, next, keys)
		c.parts = append(c.parts, p)
		return p.addr
	}
	if name == viaTunnel {
		edge := part("edge", "")
		part("agent", edge+" "+upstream)
		c.entry = part("forwarder", edge)
	} else {
		c.entry = part("forwarder", part("edge", part("agent", upstream)))
	}
	return c
}

func (c *chain) cpu(b *testing.B) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, p := range c.parts {
		sum += p.cpu(b)
	}
	return sum
}

// serveUpstream answers every 64-byte request with as many bytes as its first eight say, at least 64.
func serveUpstream(b *testing.B) string {
	b.Helper()
	payload := make([]byte, 256<<10)
	addr, err := listen(func(c *net.TCPConn) {
		defer func() { _ = c.Close() }()
		var request [64]byte
		if _, err := io.ReadFull(c, request[:]); err != nil {
			return
		}
		for left := int(binary.BigEndian.Uint64(request[:])); left > 0; left -= len(payload) {
			if _, err := c.Write(payload[:min(left, len(payload))]); err != nil {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return addr
}

// fetch asks for n bytes over a connection of its own and reads them to the end.
func fetch(addr string, n int, buf []byte) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var request [64]byte
	binary.BigEndian.PutUint64(request[:], uint64(n))
	if _, err := c.Write(request[:]); err != nil {
		return err
	}
	got := 0
	for {
		m, err := c.Read(buf)
		got += m
		if errors.Is(err, io.EOF) && got == n {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%d of %d bytes: %w", got, n, err)
		}
	}
}

// figures are what one chain did in one run.
type figures struct {
	cpuPerGB []float64 // seconds of CPU per 10^9 bytes, one for each round
	mbPerS   []float64
}

// bulk moves bulkBytes over the given number of streams.
func (c *chain) bulk(b *testing.B, streams int, f *figures) {
	b.Helper()
	before, began := c.cpu(b), time.Now()
	var wg sync.WaitGroup
	errs := make([]error, streams)
	for i := range streams {
		wg.Go(func() { errs[i] = fetch(c.entry, bulkBytes/streams, make([]byte, 256<<10)) })
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
	}
	gb := float64(bulkBytes/streams*streams) / 1e9
	f.cpuPerGB = append(f.cpuPerGB, (c.cpu(b)-before).Seconds()/gb)
	f.mbPerS = append(f.mbPerS, gb*1000/took.Seconds())
}

// setUp times connections one after the other: connect, 64 bytes there and back, end.
func (c *chain) setUp(b *testing.B, n int) []float64 {
	b.Helper()
	buf := make([]byte, 1<<10)
	var ms []float64
	for range n {
		began := time.Now()
		if err := fetch(c.entry, 64, buf); err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
		ms = append(ms, float64(time.Since(began).Microseconds())/1000)
	}
	return ms
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// ratio is the median of the rounds' ratios: the two figures of a round were taken one right after the other.
func ratio(a, b []float64) float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return median(r)
}

// BenchmarkChain prints a table and reports the ratios of the tunnel to raw TLS. One iteration is the whole measurement.
func BenchmarkChain(b *testing.B) {
	keys, err := makeKeys()
	if err != nil {
		b.Fatal(err)
	}
	upstream := serveUpstream(b)
	tunnelled, raw, plain := startChain(b, viaTunnel, keys, upstream), startChain(b, viaTLS, keys, upstream), startChain(b, viaTCP, keys, upstream)
	for _, c := range []*chain{tunnelled, raw, plain} {
		c.setUp(b, 20) // warm: caches, tickets, second connections
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%d CPUs, %s; CPU is that of all three relays; medians of %d interleaved rounds\n", runtime.NumCPU(), runtime.Version(), bulkRounds)
	fmt.Fprintf(&table, "%-34s %10s %10s %10s %8s\n", "", "tunnel", "raw TLS", "plain TCP", "ratio")
	for range b.N {
		for _, streams := range []int{1, 16} {
			var t, r, p figures
			for range bulkRounds {
				tunnelled.bulk(b, streams, &t)
				raw.bulk(b, streams, &r)
				plain.bulk(b, streams, &p)
			}
			cpu, speed := ratio(t.cpuPerGB, r.cpuPerGB), ratio(t.mbPerS, r.mbPerS)
			row(&table, fmt.Sprintf("CPU s/GB, %d stream(s)", streams), t.cpuPerGB, r.cpuPerGB, p.cpuPerGB, cpu)
			row(&table, fmt.Sprintf("MB/s, %d stream(s)", streams), t.mbPerS, r.mbPerS, p.mbPerS, speed)
			b.ReportMetric(cpu, fmt.Sprintf("cpu-ratio-%d", streams))
			b.ReportMetric(speed, fmt.Sprintf("speed-ratio-%d", streams))
		}
		var t, r, p []float64
		for range setRounds {
			t, r, p = append(t, tunnelled.setUp(b, setUps)...), append(r, raw.setUp(b, setUps)...), append(p, plain.setUp(b, setUps)...)
		}
		row(&table, "connect + 64 B + close, p50 ms", t, r, p, median(t)/median(r))
		b.ReportMetric(median(t), "setup-ms")
	}
	b.ReportMetric(0, "ns/op")
	fmt.Println(table.String())
}

func row(w io.Writer, name string, t, r, p []float64, ratio float64) {
	_, _ = fmt.Fprintf(w, "%-34s %10.3f %10.3f %10.3f %8.2f\n", name, median(t), median(r), median(p), ratio)
}
