// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests of this file look at the process' descriptors, pipes and allocations, so none is
// parallel.

// newTestSplice returns the function of newSplice between two connections, its Source, and the peers
// of both.
func newTestSplice(t *testing.T) (splice func() error, src *Source, client, upstream HalfCloser) {
	t.Helper()
	client, a := tcpPair(t)
	b, upstream := tcpPair(t)
	t.Cleanup(func() {
		for _, c := range []io.Closer{client, a, b, upstream} {
			_ = c.Close()
		}
	})
	for _, c := range []HalfCloser{client, upstream} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	src = NewSource(a)
	return newSplice(&direction{from: a, to: b}, src), src, client, upstream
}

// openPipes returns how many descriptors of pipes the process has opened.
func openPipes(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		fd, _ := strconv.Atoi(e.Name())
		flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if strings.HasPrefix(target, "pipe:") && flags&unix.FD_CLOEXEC != 0 { // not inherited
			n++
		}
	}
	return n
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("timed out: " + what)
		}
	}
}

func TestSplice_MovesToEndOfInput(t *testing.T) {
	splice, src, client, upstream := newTestSplice(t)
	send(t, client, "x")
	if b, err := src.Next(); err != nil || string(b) != "x" {
		t.Fatalf("read %q, %v", b, err)
	}
	send(t, client, "question")
	mustClose(t, client)
	if err := splice(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if _, err := io.ReadFull(upstream, got); err != nil || string(got) != "question" {
		t.Errorf("received %q, %v", got, err)
	}
	if src.buf != nil {
		t.Error("holds a buffer")
	}
}

// TestSplice_PoolsEmptyPipes checks that a direction holds no pipe while it waits, that the pool has
// empty ones only, and that the garbage collector closes them.
func TestSplice_PoolsEmptyPipes(t *testing.T) {
	drop := func() bool {
		runtime.GC()
		return openPipes(t) == 0
	}
	await(t, "no pipe at first", drop)
	r := overTCP(t, Options{})
	send(t, r.client, "x")
	if _, err := io.ReadFull(r.upstream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, "no pipe in use while idle", func() bool { return pipesInUse.Load() == 0 })
	p := takePipe()
	if n, err := unix.Read(p.out, make([]byte, 1)); err != unix.EAGAIN { //nolint:errorlint // a system call's own error
		t.Errorf("a pipe of the pool has %d bytes, %v", n, err)
	}
	p.release(true)

	splice, _, client, upstream := newTestSplice(t)
	broken := make(chan error)
	go func() { broken <- splice() }()
	fill(t, client)
	before := openPipes(t)
	if n := pipesInUse.Load(); n != 1 {
		t.Errorf("%d pipes in use while the output takes no bytes", n)
	}
	Abort(upstream)
	if err := <-broken; !errors.As(err, new(*writeError)) {
		t.Errorf("splicing to a broken connection: %v", err)
	}
	if n := openPipes(t); n != before-2 || pipesInUse.Load() != 0 {
		t.Errorf("%d descriptors of pipes, before %d; %d in use", n, before, pipesInUse.Load())
	}
	await(t, "no pipe in the end", drop)
}

func TestSplice_CopiesWithoutPipe(t *testing.T) {
	var taken []*pipe
	for p := takePipe(); p != nil; p = takePipe() {
		taken = append(taken, p)
	}
	if len(taken) != maxPipes {
		t.Fatalf("%d pipes", len(taken))
	}
	r := overTCP(t, Options{})
	const size = 8 << 20
	sent := make(chan []byte, 1)
	go func() {
		sum, _ := sendSum(r.client, 1, size)
		sent <- sum
		_ = r.client.CloseWrite()
	}()
	if sum, err := receiveSum(r.upstream, size); err != nil || !bytes.Equal(sum, <-sent) {
		t.Errorf("received other bytes than were sent, or %v", err)
	}
	mustClose(t, r.upstream)
	if out := <-r.result; out.err != nil {
		t.Error(out.err)
	}
	for _, p := range taken {
		p.release(true)
	}
}

// TestSplice_CopiesWhereRefused checks a file that splice(2) does not read.
func TestSplice_CopiesWhereRefused(t *testing.T) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	s := &splicer{direction: &direction{}}
	if !s.fillPipe(uintptr(fd)) || s.held != 0 || s.err != nil || s.copies == 0 {
		t.Errorf("%d bytes, %v", s.held, s.err)
	}
	s.releasePipe()
}

func TestSplice_DoesNotAllocate(t *testing.T) {
	r := overTCP(t, Options{})
	b := make([]byte, 1000)
	if n := testing.AllocsPerRun(1000, func() {
		_, _ = r.client.Write(b)
		_, _ = io.ReadFull(r.upstream, b)
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
