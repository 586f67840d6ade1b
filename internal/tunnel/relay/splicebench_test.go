// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const peerAddress = "RELAY_BENCH_ADDRESS"

// TestBenchmarkPeer is the process of both peers of BenchmarkJoin_SpliceAgainstCopy.
func TestBenchmarkPeer(t *testing.T) {
	address := os.Getenv(peerAddress)
	if address == "" {
		t.Skip("runs as a process of BenchmarkJoin_SpliceAgainstCopy")
	}
	var conns [2]*net.TCPConn
	for i := range conns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		conns[i] = c.(*net.TCPConn)
	}
	go func() {
		for record := make([]byte, 16<<10); ; {
			if _, err := conns[0].Write(record); err != nil {
				return
			}
		}
	}()
	_, _ = io.CopyBuffer(onlyWriter{io.Discard}, onlyReader{conns[1]}, make([]byte, 256<<10))
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// processorTimePerGB relays between two connections of another process for a second, and returns this
// process' user and system time in seconds per GB.
func processorTimePerGB(b *testing.B, carrier func(*net.TCPConn) HalfCloser) float64 {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	peer := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestBenchmarkPeer$")
	peer.Env = append(os.Environ(), peerAddress+"="+ln.Addr().String())
	if err := peer.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = peer.Wait() }()
	var ends [2]HalfCloser
	for i := range ends {
		c, err := ln.Accept()
		if err != nil {
			b.Fatal(err)
		}
		ends[i] = carrier(c.(*net.TCPConn))
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	before := processorTime(b)
	moved, _ := Join(ctx, ends[0], ends[1], Options{})
	return (processorTime(b) - before).Seconds() / float64(moved.AToB) * 1e9
}

// BenchmarkJoin_SpliceAgainstCopy prints the processor time of both, and their ratio.
func BenchmarkJoin_SpliceAgainstCopy(b *testing.B) {
	var copied, spliced float64
	for b.Loop() {
		copied += processorTimePerGB(b, carriers["opaque"])
		spliced += processorTimePerGB(b, carriers["TCP"])
	}
	b.ReportMetric(copied/float64(b.N), "copy-s/GB")
	b.ReportMetric(spliced/float64(b.N), "splice-s/GB")
	b.ReportMetric(spliced/copied, "ratio")
}
