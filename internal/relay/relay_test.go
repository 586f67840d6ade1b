// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Join between two connections: client <-> a, b <-> upstream.
type rig struct {
	client, upstream HalfCloser
	result           chan outcome
	cancel           context.CancelCauseFunc
}

type outcome struct {
	Result
	err error
}

func start(t *testing.T, client, a, b, upstream HalfCloser, opt Options) *rig {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &rig{client: client, upstream: upstream, result: make(chan outcome, 1), cancel: cancel}
	go func() {
		res, err := Join(ctx, a, b, opt)
		r.result <- outcome{res, err}
		close(r.result)
	}()
	t.Cleanup(func() {
		cancel(nil)
		_ = client.Close()
		_ = upstream.Close()
		for range r.result { // until Join has returned
		}
	})
	return r
}

// overTCP joins two TCP connections on loopback.
func overTCP(t *testing.T, opt Options) *rig {
	client, a := tcpPair(t)
	b, upstream := tcpPair(t)
	return start(t, client, a, b, upstream, opt)
}

// overPipes joins two connections in memory.
func overPipes(t *testing.T, opt Options) *rig {
	client, a := memoryPair()
	b, upstream := memoryPair()
	return start(t, client, a, b, upstream, opt)
}

func tcpPair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// memoryConn is a connection in memory with half-close and abort.
type memoryConn struct {
	net.Conn // deadlines and addresses; nil, as nobody asks
	in       *io.PipeReader
	out      *io.PipeWriter
}

var errTorn = errors.New("torn")

func memoryPair() (*memoryConn, *memoryConn) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return &memoryConn{in: r1, out: w2}, &memoryConn{in: r2, out: w1}
}

func (c *memoryConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *memoryConn) CloseWrite() error           { return c.out.Close() }
func (c *memoryConn) Close() error                { return errors.Join(c.in.Close(), c.out.Close()) }
func (c *memoryConn) Abort() error {
	return errors.Join(c.in.CloseWithError(errTorn), c.out.CloseWithError(errTorn))
}

var transports = map[string]func(*testing.T, Options) *rig{"tcp": overTCP, "memory": overPipes}

func TestHalfCloseFromEitherSideKeepsTheOtherDirection(t *testing.T) {
	t.Parallel()
	for name, join := range transports {
		for _, clientFirst := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := join(t, Options{})
				first, second := r.client, r.upstream
				if !clientFirst {
					first, second = second, first
				}
				send(t, first, "question")
				mustClose(t, first)
				if got := receive(t, second); got != "question" {
					t.Fatalf("received %q", got)
				}
				send(t, second, "a long answer")
				mustClose(t, second)
				if got := receive(t, first); got != "a long answer" {
					t.Fatalf("received %q after the half-close", got)
				}
				out := <-r.result
				if out.err != nil {
					t.Fatalf("Join: %v", out.err)
				}
				want := Result{AToB: 8, BToA: 13}
				if !clientFirst {
					want = Result{AToB: 13, BToA: 8}
				}
				if out.Result != want {
					t.Fatalf("counted %+v, want %+v", out.Result, want)
				}
			})
		}
	}
}

func TestAbortOnOneSideIsAnErrorOnTheOther(t *testing.T) {
	t.Parallel()
	for name, join := range transports {
		for _, byClient := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := join(t, Options{})
				torn, other := r.client, r.upstream
				if !byClient {
					torn, other = other, torn
				}
				send(t, torn, "half of")
				buf := make([]byte, 7)
				if _, err := io.ReadFull(other, buf); err != nil {
					t.Fatal(err)
				}
				abort(torn)
				if _, err := other.Read(buf); err == nil || errors.Is(err, io.EOF) {
					t.Fatalf("the other side read %v after an abort", err)
				}
				if out := <-r.result; out.err == nil {
					t.Fatal("Join called an abort an ordinary end")
				}
			})
		}
	}
}

func TestCancelAbortsBothSides(t *testing.T) {
	t.Parallel()
	for name, join := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := join(t, Options{})
			send(t, r.client, "x")
			if _, err := io.ReadFull(r.upstream, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			revoked := errors.New("revoked")
			r.cancel(revoked)
			for _, c := range []HalfCloser{r.client, r.upstream} {
				if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("a side read %v after the cancel", err)
				}
			}
			if out := <-r.result; !errors.Is(out.err, revoked) {
				t.Errorf("Join returned %v, want the cause", out.err)
			}
		})
	}
}

func TestAbortOfTCPIsAReset(t *testing.T) {
	t.Parallel()
	r := overTCP(t, Options{})
	send(t, r.client, "x")
	if _, err := io.ReadFull(r.upstream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	abort(r.client)
	if _, err := r.upstream.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("upstream read %v, want a reset connection", err)
	}
}

func TestHalfClosedAndIdleIsAborted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overPipes(t, Options{HalfCloseTimeout: time.Minute})
		time.Sleep(time.Hour) // open in both directions: may idle for ever
		mustClose(t, r.client)
		if got := receive(t, r.upstream); got != "" {
			t.Fatalf("received %q", got)
		}
		for range 10 { // not idle: a byte every 50 s
			time.Sleep(50 * time.Second)
			send(t, r.upstream, "x")
			if _, err := io.ReadFull(r.client, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		out := <-r.result
		if !errors.Is(out.err, ErrIdle) {
			t.Fatalf("Join returned %v", out.err)
		}
		if d := time.Since(began); d < time.Minute || d > 75*time.Second {
			t.Fatalf("aborted after %s, want 60 to 75 s", d)
		}
	})
}

func TestMovesEveryByteBothWays(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	for name, join := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := join(t, Options{})
			sums := make(chan [2][]byte, 2)
			sendAndReceive := func(c HalfCloser, seed uint64) {
				sent := make(chan []byte)
				go func() {
					h := sha256.New()
					_, err := io.CopyBuffer(onlyWriter{io.MultiWriter(c, h)}, onlyReader{random(seed, size)}, make([]byte, 40_000))
					if err = errors.Join(err, c.CloseWrite()); err != nil {
						t.Errorf("sending: %v", err)
					}
					sent <- h.Sum(nil)
				}()
				h := sha256.New()
				if n, err := io.CopyBuffer(onlyWriter{h}, onlyReader{c}, make([]byte, 50_000)); err != nil || n != size {
					t.Errorf("received %d bytes: %v", n, err)
				}
				sums <- [2][]byte{<-sent, h.Sum(nil)}
			}
			go sendAndReceive(r.client, 1)
			go sendAndReceive(r.upstream, 2)
			one, other := <-sums, <-sums
			if !bytes.Equal(one[0], other[1]) || !bytes.Equal(one[1], other[0]) {
				t.Error("the bytes received are not those sent")
			}
			if out := <-r.result; out.err != nil || out.AToB != size || out.BToA != size {
				t.Errorf("Join: %+v", out)
			}
		})
	}
}

// Not parallel: it counts the process' allocations.
func TestMovingBytesDoesNotAllocate(t *testing.T) {
	r := overTCP(t, Options{})
	chunk := make([]byte, 1<<20)
	exchange := func() {
		errs := make(chan error, 1)
		go func() {
			_, err := r.client.Write(chunk)
			errs <- err
		}()
		if _, err := io.CopyN(onlyWriter{io.Discard}, r.upstream, int64(len(chunk))); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 64
	for range rounds {
		exchange()
	}
	runtime.ReadMemStats(&after)
	if perMiB := (after.Mallocs - before.Mallocs) / rounds; perMiB > 30 { // the test's own reader and goroutine
		t.Errorf("%d allocations per MiB", perMiB)
	}
}

func TestIdleConnectionsHoldNoBuffer(t *testing.T) {
	t.Parallel()
	client, a := tcpPair(t)
	defer func() { _, _ = client.Close(), a.Close() }()
	src := newSource(a)
	if !canPoll {
		t.Skip("this system's sockets cannot be polled")
	}
	waited := make(chan bool, 8)
	inner := src.poll
	src.poll = func(fd uintptr) bool {
		ok := inner(fd)
		if !ok {
			waited <- src.buf == nil
		}
		return ok
	}
	go func() {
		for range 2 {
			if !<-waited {
				t.Error("holds a buffer while it waits")
			}
			_, _ = client.Write([]byte("x"))
		}
	}()
	for range 2 {
		if b, err := src.next(); err != nil || string(b) != "x" {
			t.Fatalf("read %q, %v", b, err)
		}
	}
	stream := &readyConn{memoryConn: memoryConn{in: nil}, t: t}
	src = newSource(stream)
	stream.src = src
	for range 3 {
		if b, err := src.next(); err != nil || len(b) != 5 {
			t.Fatalf("read %q, %v", b, err)
		}
	}
}

// readyConn is a tunnel stream of sorts.
type readyConn struct {
	memoryConn
	src *source
	t   *testing.T
}

func (c *readyConn) Read(p []byte) (int, error) { return copy(p, "ready"), nil }
func (c *readyConn) WaitReadable() error {
	if c.src.buf != nil {
		c.t.Error("holds a buffer while it waits")
	}
	return nil
}

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

func random(seed uint64, n int64) io.Reader {
	var s [32]byte
	s[0] = byte(seed)
	return io.LimitReader(rand.NewChaCha8(s), n)
}

func send(t *testing.T, c io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t *testing.T, c HalfCloser) {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(onlyReader{c})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
