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
	"strconv"
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
		size, _ := strconv.Atoi(os.Getenv("RELAY_CHUNK"))
		if size == 0 {
			size = 16 << 10
		}
		if name := os.Getenv("RELAY_FILE"); name != "" {
			for {
				f, _ := os.Open(name)
				if _, err := conns[0].ReadFrom(f); err != nil {
					return
				}
				f.Close()
			}
		}
		record := make([]byte, size)
		for {
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

// relayCPU relays size bytes between two connections of another process, and returns this process'
// user and system time per GB.
func relayCPU(b *testing.B, carrier func(*net.TCPConn) HalfCloser, size int64) float64 {
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
	ctx, cancel := context.WithCancel(b.Context())
	before := processorTime(b)
	done := make(chan Result)
	go func() {
		res, _ := Join(ctx, ends[0], ends[1], Options{})
		done <- res
	}()
	for end := time.Now().Add(time.Duration(size)); time.Now().Before(end); {
		time.Sleep(time.Millisecond * 20)
	}
	cancel()
	res := <-done
	b.Logf("%d MB", res.AToB>>20)
	return (processorTime(b) - before).Seconds() / float64(res.AToB) * 1e9
}

func BenchmarkJoin_SpliceAgainstCopy(b *testing.B) {
	for b.Loop() {
		for _, name := range []string{"opaque", "TCP", "opaque", "TCP"} {
			b.Logf("%s %.3f s/GB", name, relayCPU(b, carriers[name], int64(2*time.Second)))
		}
	}
}
