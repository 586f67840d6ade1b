// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var transports = map[string]func(*testing.T, Options) *joinedPair{"tcp": overTCP, "memory": overPipes}

func TestJoin_HalfCloseKeepsOtherDirection(t *testing.T) {
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

func TestJoin_AbortIsErrorOnOtherSide(t *testing.T) {
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
				Abort(torn)
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

func TestJoin_CancelAbortsBothSides(t *testing.T) {
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

func TestJoin_AbortResetsTCP(t *testing.T) {
	t.Parallel()
	r := overTCP(t, Options{})
	send(t, r.client, "x")
	if _, err := io.ReadFull(r.upstream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	Abort(r.client)
	if _, err := r.upstream.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("upstream read %v, want a reset connection", err)
	}
}

// blockedAbortConn is an end whose abort blocks.
type blockedAbortConn struct {
	*memoryConn
	release chan struct{}
}

func (c blockedAbortConn) Abort() error {
	<-c.release
	return c.memoryConn.Abort()
}

func TestJoin_AbortsSidesInParallel(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		client, a := memoryPair()
		b, upstream := memoryPair()
		release := make(chan struct{})
		var r *joinedPair
		if first {
			r = start(t, client, blockedAbortConn{a, release}, b, upstream, Options{})
		} else {
			r = start(t, upstream, b, blockedAbortConn{a, release}, client, Options{})
		}
		r.cancel(errAborted)
		if _, err := upstream.Read(make([]byte, 1)); !errors.Is(err, errAborted) {
			t.Errorf("read %v", err)
		}
		close(release)
	}
}

// unwritableConn is a connection that takes no bytes, and has some to read after a while.
type unwritableConn struct {
	*memoryConn
	after time.Duration // 0 = none come
}

func (c unwritableConn) Write([]byte) (int, error) { return 0, errAborted }

func (c unwritableConn) Read(p []byte) (int, error) {
	if c.after == 0 {
		return c.memoryConn.Read(p)
	}
	time.Sleep(c.after)
	return copy(p, "answer"), errAborted
}

// TestJoin_ReadsOnAfterFailedWrite checks that the answer of a side that takes no more bytes is
// delivered before both are aborted, within a second.
func TestJoin_ReadsOnAfterFailedWrite(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{0: "", lastBytesTimeout / 2: "answer", 2 * lastBytesTimeout: ""} {
		for _, first := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				client, a := memoryPair()
				b, upstream := memoryPair()
				var one, other HalfCloser = a, unwritableConn{b, after}
				if !first {
					one, other = other, one
				}
				r := start(t, client, one, other, upstream, Options{})
				began := time.Now()
				go func() { _, _ = io.WriteString(client, "x") }()
				got, err := io.ReadAll(onlyReader{client})
				if string(got) != want || !errors.Is(err, errAborted) {
					t.Errorf("after %v: received %q, %v", after, got, err)
				}
				if took := time.Since(began); took > lastBytesTimeout {
					t.Errorf("after %v: aborted after %v", after, took)
				}
				if out := <-r.result; !errors.Is(out.err, errAborted) {
					t.Errorf("Join returned %v", out.err)
				}
			})
		}
	}
}

func TestJoin_AbortsIdleHalfClosed(t *testing.T) {
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

func TestJoin_CopiesBothWays(t *testing.T) {
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
					_, err := io.CopyBuffer(onlyWriter{io.MultiWriter(c, h)}, onlyReader{random(seed, size)},
						make([]byte, 40_000))
					if err = errors.Join(err, c.CloseWrite()); err != nil {
						t.Errorf("sending: %v", err)
					}
					sent <- h.Sum(nil)
				}()
				h := sha256.New()
				if n, err := io.CopyBuffer(onlyWriter{h}, onlyReader{c}, make([]byte, 50_000)); err != nil ||
					n != size {
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

// TestJoin_CopyingDoesNotAllocate counts the process' allocations, so it is not parallel.
func TestJoin_CopyingDoesNotAllocate(t *testing.T) {
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

// newPolledSource returns a client's connection and the Source of its other end.
func newPolledSource(t *testing.T) (*net.TCPConn, *Source) {
	t.Helper()
	if !connread.CanPoll {
		t.Skip("this system's sockets cannot be polled")
	}
	client, a := tcpPair(t)
	t.Cleanup(func() { _, _ = client.Close(), a.Close() })
	return client, NewSource(a)
}

// TestSource_HoldsNoBufferAtEOF checks a peer that has sent everything: it may wait long for an
// answer.
func TestSource_HoldsNoBufferAtEOF(t *testing.T) {
	t.Parallel()
	client, src := newPolledSource(t)
	send(t, client, "x")
	mustClose(t, client)
	if b, err := src.Next(); err != nil || string(b) != "x" {
		t.Fatalf("read %q, %v", b, err)
	}
	if b, err := src.Next(); err != io.EOF || len(b) != 0 { //nolint:errorlint // io.EOF itself
		t.Fatalf("read %q, %v", b, err)
	}
	if src.buf != nil {
		t.Error("holds a buffer")
	}
}

func TestJoin_IdleHoldsNoBuffer(t *testing.T) {
	t.Parallel()
	client, src := newPolledSource(t)
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
		if b, err := src.Next(); err != nil || string(b) != "x" {
			t.Fatalf("read %q, %v", b, err)
		}
	}
	stream := &lendingConn{memoryConn: memoryConn{in: nil}, t: t}
	src = NewSource(stream)
	stream.src = src
	for range 3 {
		if b, err := src.Next(); err != nil || len(b) != 5 {
			t.Fatalf("read %q, %v", b, err)
		}
	}
}

// lendingConn is a connection with Next, as a tunnel stream.
type lendingConn struct {
	memoryConn
	src *Source
	t   *testing.T
}

func (c *lendingConn) Next() ([]byte, error) {
	if c.src.buf != nil {
		c.t.Error("holds a buffer")
	}
	return []byte("ready"), nil
}
