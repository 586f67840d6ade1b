// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// countingConn is a connection that copies at first, and then has a socket.
type countingConn struct {
	*net.TCPConn
	copies  int64 // copies counts the bytes that it copies before it has a socket.
	copied  [2]atomic.Int64
	spliced [2]atomic.Int64
	ended   atomic.Bool
}

const (
	read = iota
	written
)

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.copied[read].Add(int64(n))
	if err == io.EOF { //nolint:errorlint // io.EOF itself
		c.ended.Store(true)
	}
	return n, err
}

func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.copied[written].Add(int64(n))
	return n, err
}

func (c *countingConn) Socket() *net.TCPConn {
	if c.copied[read].Load()+c.copied[written].Load() < c.copies {
		return nil
	}
	return c.TCPConn
}

func (c *countingConn) CountSpliced(r, w int) {
	c.spliced[read].Add(int64(r))
	c.spliced[written].Add(int64(w))
}

// opaqueConn is a TCP connection that is always copied.
type opaqueConn struct{ *net.TCPConn }

// carriers make the connection that Join gets of a socket.
var carriers = map[string]func(*net.TCPConn) HalfCloser{
	"TCP":         func(c *net.TCPConn) HalfCloser { return c },
	"late socket": func(c *net.TCPConn) HalfCloser { return &countingConn{TCPConn: c, copies: 100_000} },
	"opaque":      func(c *net.TCPConn) HalfCloser { return opaqueConn{c} },
}

// carried is a Join of two carriers, with the connections that it got.
type carried struct {
	*joinedPair
	a, b HalfCloser
}

// overCarriers runs a test with pairs of carriers.
func overCarriers(t *testing.T, opt Options, test func(*testing.T, carried)) {
	for _, names := range [][2]string{
		{"TCP", "TCP"}, {"TCP", "late socket"}, {"late socket", "late socket"}, {"opaque", "TCP"},
	} {
		t.Run(names[0]+" and "+names[1], func(t *testing.T) {
			t.Parallel()
			client, a := tcpPair(t)
			b, upstream := tcpPair(t)
			c := carried{a: carriers[names[0]](a), b: carriers[names[1]](b)}
			c.joinedPair = start(t, client, c.a, c.b, upstream, opt)
			test(t, c)
		})
	}
}

// sendSum sends random bytes and returns their sum.
func sendSum(c io.Writer, seed uint64, n int64) (sum []byte, err error) {
	h := sha256.New()
	_, err = io.CopyBuffer(onlyWriter{io.MultiWriter(c, h)}, onlyReader{random(seed, n)}, make([]byte, 40_000))
	return h.Sum(nil), err
}

// receiveSum reads to the end and returns the sum of what it read.
func receiveSum(c io.Reader, size int64) (sum []byte, err error) {
	h := sha256.New()
	n, err := io.CopyBuffer(onlyWriter{h}, onlyReader{c}, make([]byte, 50_000))
	if err == nil && n != size {
		err = fmt.Errorf("received %d bytes", n)
	}
	return h.Sum(nil), err
}

func TestSplice_MovesBothWays(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	overCarriers(t, Options{}, func(t *testing.T, c carried) {
		type transfer struct {
			sent, received []byte
			err            error
		}
		transfers := make(chan transfer)
		for i, ends := range [][2]HalfCloser{{c.client, c.upstream}, {c.upstream, c.client}} {
			go func() {
				var sent []byte
				var sendErr error
				done := make(chan struct{})
				go func() {
					defer close(done)
					sent, sendErr = sendSum(ends[0], uint64(i), size)
					sendErr = errors.Join(sendErr, ends[0].CloseWrite())
				}()
				received, err := receiveSum(ends[1], size)
				<-done
				transfers <- transfer{sent, received, errors.Join(sendErr, err)}
			}()
		}
		for range 2 {
			if tr := <-transfers; tr.err != nil || !bytes.Equal(tr.sent, tr.received) {
				t.Errorf("received other bytes than were sent, or %v", tr.err)
			}
		}
		if out := <-c.result; out.err != nil || out.AToB != size || out.BToA != size {
			t.Errorf("Join: %+v", out)
		}
		for _, end := range []HalfCloser{c.a, c.b} {
			if end, ok := end.(*countingConn); ok {
				for i := range 2 {
					if n := end.copied[i].Load() + end.spliced[i].Load(); n != size {
						t.Errorf("counted %d bytes", n)
					}
				}
				if !end.ended.Load() {
					t.Error("the connection was not read to its end")
				}
			}
		}
	})
}

// TestSplice_AbortDuringBulk checks that an abort while bytes move in both directions is never an
// end of input.
func TestSplice_AbortDuringBulk(t *testing.T) {
	t.Parallel()
	for _, byClient := range []bool{true, false} {
		overCarriers(t, Options{}, func(t *testing.T, c carried) {
			torn, other := c.client, c.upstream
			if !byClient {
				torn, other = other, torn
			}
			errs := make(chan error, 2)
			sendEndlessly := func(to HalfCloser, errs chan<- error) {
				_, err := sendSum(to, 0, 1<<40)
				errs <- err
			}
			go sendEndlessly(torn, make(chan error, 1))
			go sendEndlessly(other, errs)
			for _, end := range []HalfCloser{other, torn} {
				if _, err := io.CopyN(onlyWriter{io.Discard}, end, 4<<20); err != nil {
					t.Fatal(err)
				}
			}
			Abort(torn)
			_, err := io.Copy(onlyWriter{io.Discard}, onlyReader{other})
			// The first of two calls gets the error; after an end of input a write would get EPIPE.
			if err = errors.Join(err, <-errs); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the other side got %v after an abort", err)
			}
			if out := <-c.result; out.err == nil {
				t.Error("Join called an abort an ordinary end")
			}
		})
	}
}

// fill writes until the path takes no more bytes, and returns how many it took.
func fill(t *testing.T, c net.Conn) (n int64) {
	t.Helper()
	for chunk := make([]byte, 1<<20); ; {
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		written, err := c.Write(chunk)
		n += int64(written)
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatal(err)
		case written == 0:
			_ = c.SetWriteDeadline(time.Time{})
			return n
		}
	}
}

// TestSplice_EndsWithoutReader checks that a peer that takes no bytes keeps nothing from ending the
// Join.
func TestSplice_EndsWithoutReader(t *testing.T) {
	t.Parallel()
	revoked := errors.New("revoked")
	for want, end := range map[error]func(carried){
		revoked:                func(c carried) { c.cancel(revoked) },
		syscall.ECONNRESET:     func(c carried) { Abort(c.upstream) },
		net.ErrClosed:          func(c carried) { _ = c.b.Close() },
		os.ErrDeadlineExceeded: func(c carried) { _ = c.b.SetDeadline(time.Unix(1, 0)) },
	} {
		overCarriers(t, Options{}, func(t *testing.T, c carried) {
			fill(t, c.client)
			end(c)
			if out := <-c.result; !errors.Is(out.err, want) {
				t.Errorf("Join returned %v, want %v", out.err, want)
			}
			if _, err := c.client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client read %v", err)
			}
		})
	}
}

// TestSplice_ContinuesAfterBackPressure checks a reader that begins late.
func TestSplice_ContinuesAfterBackPressure(t *testing.T) {
	t.Parallel()
	overCarriers(t, Options{}, func(t *testing.T, c carried) {
		size := fill(t, c.client)
		mustClose(t, c.client)
		mustClose(t, c.upstream)
		if _, err := receiveSum(c.upstream, size); err != nil {
			t.Error(err)
		}
		if out := <-c.result; out.err != nil || out.Result != (Result{AToB: size}) {
			t.Errorf("Join: %+v, want %d bytes", out, size)
		}
	})
}

func TestSplice_AbortsIdleHalfClosed(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	overCarriers(t, Options{HalfCloseTimeout: timeout}, func(t *testing.T, c carried) {
		mustClose(t, c.client)
		if got := receive(t, c.upstream); got != "" {
			t.Fatalf("received %q", got)
		}
		for began := time.Now(); time.Since(began) < 3*timeout; { // not idle
			if _, err := c.upstream.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c.client, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		if out := <-c.result; !errors.Is(out.err, ErrIdle) {
			t.Fatalf("Join returned %v", out.err)
		}
	})
}

var errRevoked = errors.New("revoked")

// revokedConn is a connection that knows why its socket was closed.
type revokedConn struct{ *countingConn }

func (c revokedConn) Read(p []byte) (int, error) {
	n, err := c.countingConn.Read(p)
	return n, c.explain(err)
}

func (c revokedConn) Write(p []byte) (int, error) {
	n, err := c.countingConn.Write(p)
	return n, c.explain(err)
}

func (c revokedConn) explain(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return errRevoked
	}
	return err
}

// TestSplice_ReturnsConnectionsError checks that the error is that of the connection, not of its
// socket.
func TestSplice_ReturnsConnectionsError(t *testing.T) {
	t.Parallel()
	for name, stalled := range map[string]bool{"reading": false, "writing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, a := tcpPair(t)
			b, upstream := tcpPair(t)
			r := start(t, client, a, revokedConn{&countingConn{TCPConn: b}}, upstream, Options{})
			if stalled {
				_ = fill(t, client)
				_ = upstream.CloseWrite()                                  // ends the reader of b
				if _, err := client.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // io.EOF itself
					t.Fatal(err)
				}
			} else {
				send(t, client, "x")
				if _, err := io.ReadFull(upstream, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			_ = b.Close()
			if out := <-r.result; !errors.Is(out.err, errRevoked) {
				t.Errorf("Join returned %v", out.err)
			}
		})
	}
}
