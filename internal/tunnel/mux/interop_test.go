// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

func yamuxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog, c.MaxIncomingStreams = 4096, 65536
	c.InitialStreamWindowSize, c.MaxStreamWindowSize = 1<<20, 16<<20
	c.KeepAliveInterval, c.ConnectionWriteTimeout = 15*time.Second, 30*time.Second
	c.LogOutput, c.ReadBufSize = io.Discard, 64<<10
	return c
}

// newYamuxSession starts a session of go-yamux.
func newYamuxSession(t testing.TB, c net.Conn, client bool) *yamux.Session {
	start := yamux.Server
	if client {
		start = yamux.Client
	}
	s, err := start(c, yamuxConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// withYamux runs a test with a session of this package and one of go-yamux, either as client, in
// memory and over TCP.
func withYamux(t *testing.T, f func(t *testing.T, us *mux.Session, them *yamux.Session)) {
	t.Parallel()
	for _, client := range []bool{true, false} {
		for _, tcp := range []bool{true, false} {
			name := map[bool]string{true: "client", false: "server"}[client] + map[bool]string{true: " over TCP",
				false: " in memory"}[tcp]
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if tcp {
					a, b := loopback(t)
					f(t, newSession(t, &wire{Conn: a}, mux.Config{Client: client}), newYamuxSession(t, b, !client))
					return
				}
				a, b := pipe(300 << 10)
				f(t, newSession(t, a, mux.Config{Client: client}), newYamuxSession(t, b, !client))
			})
		}
	}
}

// halfCloser is a stream of either implementation.
type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// testPeer opens and accepts streams of either implementation.
type testPeer struct {
	open   func(first []byte) (halfCloser, error)
	accept func() (halfCloser, error)
}

func muxPeer(s *mux.Session) testPeer {
	return testPeer{
		func(first []byte) (halfCloser, error) { return s.Open(context.Background(), first) },
		func() (halfCloser, error) { return s.Accept() },
	}
}

func yamuxPeer(s *yamux.Session) testPeer {
	return testPeer{
		func(first []byte) (halfCloser, error) {
			st, err := s.OpenStream(context.Background())
			if err == nil && len(first) > 0 {
				_, err = st.Write(first)
			}
			return st, err
		},
		func() (halfCloser, error) { return s.AcceptStream() },
	}
}

// echo accepts n streams and sends back all bytes of each.
func (p testPeer) echo(t *testing.T, n int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range n {
		st, err := p.accept()
		if err != nil {
			t.Error("accepting:", err)
			return
		}
		wg.Go(func() {
			said, err := io.ReadAll(st)
			if err == nil {
				_, err = st.Write(said)
			}
			if err = errors.Join(err, st.CloseWrite()); err != nil {
				t.Error("answering:", err)
			}
			release(st)
		})
	}
}

// ask opens a stream, sends random bytes, closes, and compares the echo.
func (p testPeer) ask(t *testing.T, seed, size int) {
	say := randomBytes(seed, size)
	first := say[:min(size, seed%3*1000)]
	st, err := p.open(first)
	if err != nil {
		t.Error("opening:", err)
		return
	}
	defer release(st)
	if _, err = st.Write(say[len(first):]); err == nil {
		err = st.CloseWrite()
	}
	answer, rerr := io.ReadAll(st)
	if err = errors.Join(err, rerr); err != nil || !bytes.Equal(answer, say) {
		t.Errorf("said %d bytes, heard %d, %v", len(say), len(answer), err)
	}
}

func release(st halfCloser) {
	if st, ok := st.(*mux.Stream); ok {
		st.Release()
	}
}

func TestInterop_ManyStreamsFromBothSides(t *testing.T) {
	withYamux(t, func(t *testing.T, us *mux.Session, them *yamux.Session) {
		const n = 80
		sizes := []int{0, 1, 100, 5000, 70 << 10, 300 << 10}
		var wg sync.WaitGroup
		for i, p := range []testPeer{muxPeer(us), yamuxPeer(them)} {
			wg.Go(func() { p.echo(t, n) })
			for j := range n {
				wg.Go(func() { p.ask(t, i*n+j, sizes[j%len(sizes)]) })
			}
		}
		wg.Wait()
		if q := us.Queued(); q != 0 {
			t.Errorf("%d bytes are queued", q)
		}
		wantAlive(t, us)
	})
}

func TestInterop_BulkBothWays(t *testing.T) {
	withYamux(t, func(t *testing.T, us *mux.Session, them *yamux.Session) {
		const size = 12 << 20
		a, err := us.Open(t.Context(), nil)
		noError(t, "opening", err)
		b, err := them.AcceptStream()
		noError(t, "accepting", err)
		var wg sync.WaitGroup
		sums := make([][32]byte, 4)
		for i, st := range []halfCloser{a, b} {
			wg.Go(func() {
				sent := randomBytes(20+i, size)
				sums[i] = sha256.Sum256(sent)
				_, err := io.Copy(struct{ io.Writer }{st}, bytes.NewReader(sent))
				if err = errors.Join(err, st.CloseWrite()); err != nil {
					t.Error("writing:", err)
				}
			})
			wg.Go(func() {
				h := sha256.New()
				if n, err := io.CopyBuffer(h, struct{ io.Reader }{st}, make([]byte, 64<<10)); n != size || err != nil {
					t.Errorf("read %d bytes, %v", n, err)
				}
				sums[3-i] = [32]byte(h.Sum(nil))
			})
		}
		wg.Wait()
		if sums[0] != sums[2] || sums[1] != sums[3] {
			t.Error("what was read is not what was sent")
		}
	})
}

func TestInterop_ResetsHaveCodes(t *testing.T) {
	withYamux(t, func(t *testing.T, us *mux.Session, them *yamux.Session) {
		for _, code := range []uint32{0, 1, 77, 1<<32 - 1} {
			a, err := us.Open(t.Context(), []byte("x"))
			noError(t, "opening", err)
			b, err := them.AcceptStream()
			noError(t, "accepting", err)
			readFull(t, b, 1)
			noError(t, "Reset", a.Reset(code))
			_, err = b.Read(make([]byte, 1))
			var theirError *yamux.StreamError
			if !errors.As(err, &theirError) || theirError.ErrorCode != code || !theirError.Remote {
				t.Errorf("go-yamux reads %v after our reset with code %d", err, code)
			}

			b, err = them.OpenStream(t.Context())
			noError(t, "opening", err)
			_, err = b.Write([]byte("x"))
			noError(t, "Write", err)
			a, err = us.Accept()
			noError(t, "accepting", err)
			readFull(t, a, 1)
			noError(t, "ResetWithError", b.ResetWithError(code))
			_, err = a.Read(make([]byte, 1))
			wantReset(t, "Read", err, code)
			_, err = a.Write([]byte("x"))
			wantReset(t, "Write", err, code)
			a.Release()
		}
		wantAlive(t, us)
	})
}

func TestInterop_ManyOpenings(t *testing.T) {
	withYamux(t, func(t *testing.T, us *mux.Session, them *yamux.Session) {
		const n = 4500
		const most = 4000 // that wait to be accepted: both reset what goes beyond their backlog of 4,096
		for _, way := range [][2]testPeer{{muxPeer(us), yamuxPeer(them)}, {yamuxPeer(them), muxPeer(us)}} {
			accepted, waiting := make(chan error, 1), make(chan struct{}, most)
			go func() {
				for range n {
					if _, err := way[1].accept(); err != nil {
						accepted <- err
						return
					}
					<-waiting
				}
				accepted <- nil
			}()
			for range n {
				waiting <- struct{}{}
				_, err := way[0].open(nil)
				noError(t, "opening", err)
			}
			noError(t, "accepting", <-accepted)
		}
		if a := us.NumStreams(); a != 2*n {
			t.Errorf("%d streams, want %d", a, 2*n)
		}
		p, err := us.Ping()
		noError(t, "Ping", err)
		if q, err := them.Ping(); err != nil || p < 0 || q < 0 {
			t.Errorf("pings take %v and %v, %v", p, q, err)
		}
	})
}

func TestInterop_SessionEnds(t *testing.T) {
	for what, end := range map[string]func(us *mux.Session, them *yamux.Session){
		"ours":           func(us *mux.Session, _ *yamux.Session) { us.Close(errReason) },
		"theirs":         func(_ *mux.Session, them *yamux.Session) { _ = them.Close() },
		"with a code":    func(_ *mux.Session, them *yamux.Session) { _ = them.CloseWithError(5) },
		"with a go-away": func(_ *mux.Session, them *yamux.Session) { _ = them.GoAway() },
	} {
		t.Run(what, func(t *testing.T) {
			withYamux(t, func(t *testing.T, us *mux.Session, them *yamux.Session) {
				a, err := us.Open(t.Context(), []byte("x"))
				noError(t, "opening", err)
				b, err := them.AcceptStream()
				noError(t, "accepting", err)
				readFull(t, b, 1)
				end(us, them)
				_, err = a.Read(make([]byte, 1))
				wantBroken(t, "Read", err)
				_ = awaitEnd(t, us)
				//nolint:errorlint // go-yamux wraps it when the connection broke
				if _, err = b.Read(make([]byte, 1)); err == nil || err == io.EOF {
					t.Errorf("go-yamux reads %v", err)
				}
			})
		})
	}
}

// TestInterop_IdleForHours checks both implementations' pings and their deadlines.
func TestInterop_IdleForHours(t *testing.T) {
	t.Parallel()
	for _, client := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, b := pipe(0)
			us, them := newSession(t, a, mux.Config{Client: client}), newYamuxSession(t, b, !client)
			x, err := us.Open(t.Context(), nil)
			noError(t, "opening", err)
			y, err := them.AcceptStream()
			noError(t, "accepting", err)
			noError(t, "SetReadDeadline", y.SetReadDeadline(time.Now().Add(time.Hour)))
			if _, err := y.Read(make([]byte, 1)); !os.IsTimeout(err) {
				t.Errorf("go-yamux reads %v", err)
			}
			noError(t, "SetReadDeadline", x.SetReadDeadline(time.Now().Add(4*time.Hour)))
			startCall("Read", read(x)).wantBlocked(t)
			time.Sleep(5 * time.Hour)
			wantAlive(t, us)
			if them.IsClosed() {
				t.Fatal("go-yamux has ended")
			}
			noError(t, "SetReadDeadline", y.SetReadDeadline(time.Time{}))
			noError(t, "SetReadDeadline", x.SetReadDeadline(time.Time{}))
			_, err = x.Write([]byte("good"))
			noError(t, "Write", err)
			readFull(t, y, 4)
			_, err = y.Write([]byte("morning"))
			noError(t, "Write", err)
			readFull(t, x, 7)
		})
	}
}
