// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// bufferedConn reads ahead, as the connections below production sessions do.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (a *bufferedConn) Read(p []byte) (int, error) { return a.r.Read(p) }

// forEachImplementation runs a benchmark with two sessions of this package, and with two of
// go-yamux, over TCP.
func forEachImplementation(b *testing.B, f func(b *testing.B, opens, accepts testPeer)) {
	for _, kind := range []string{"ours", "yamux"} {
		b.Run(kind, func(b *testing.B) {
			x, y := loopback(b)
			b.ReportAllocs()
			if kind == "yamux" {
				f(b, yamuxPeer(newYamuxSession(b, x, true)), yamuxPeer(newYamuxSession(b, y, false)))
				return
			}
			over := func(c net.Conn, client bool) testPeer {
				return muxPeer(newSession(b, &wire{Conn: &bufferedConn{c, bufio.NewReaderSize(c, 64<<10)}},
					mux.Config{Client: client}))
			}
			f(b, over(x, true), over(y, false))
		})
	}
}

const chunk = 65524 // a frame of 64 KiB with its header

// drain reads to the end, as a relay would.
func drain(st halfCloser) {
	if st, ok := st.(*mux.Stream); ok {
		for {
			if _, err := st.Next(); err != nil {
				return
			}
		}
	}
	_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{st}, make([]byte, chunk))
}

func bulk(b *testing.B, streams int) {
	forEachImplementation(b, func(b *testing.B, opens, accepts testPeer) {
		b.SetBytes(chunk)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range streams {
				st, err := accepts.accept()
				if err != nil {
					b.Error(err)
					return
				}
				wg.Go(func() { drain(st) })
			}
		})
		for i := range streams {
			st, err := opens.open([]byte("x"))
			if err != nil {
				b.Fatal(err)
			}
			wg.Go(func() {
				p := make([]byte, chunk)
				for j := i; j < b.N; j += streams {
					if _, err := st.Write(p); err != nil {
						b.Error(err)
						return
					}
				}
				_ = st.CloseWrite()
			})
		}
		wg.Wait()
	})
}

func BenchmarkBulk1(b *testing.B)  { bulk(b, 1) }
func BenchmarkBulk16(b *testing.B) { bulk(b, 16) }

func BenchmarkPingPong1K(b *testing.B) {
	forEachImplementation(b, func(b *testing.B, opens, accepts testPeer) {
		go func() {
			st, err := accepts.accept()
			p := make([]byte, 1<<10)
			for err == nil {
				if _, err = io.ReadFull(st, p); err == nil {
					_, err = st.Write(p)
				}
			}
		}()
		st, err := opens.open(nil)
		p := make([]byte, 1<<10)
		for i := 0; i < b.N && err == nil; i++ {
			if _, err = st.Write(p); err == nil {
				_, err = io.ReadFull(st, p)
			}
		}
		if err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkOpen opens a stream with 64 bytes, has them answered and closes, both ways.
func BenchmarkOpen(b *testing.B) {
	forEachImplementation(b, func(b *testing.B, opens, accepts testPeer) {
		const workers = 8
		var wg sync.WaitGroup
		wg.Go(func() {
			for range b.N {
				st, err := accepts.accept()
				if err != nil {
					b.Error(err)
					return
				}
				wg.Go(func() {
					said, _ := io.ReadAll(st)
					_, _ = st.Write(said)
					_ = st.CloseWrite()
					release(st)
				})
			}
		})
		for i := range workers {
			wg.Go(func() {
				say := make([]byte, 64)
				for j := i; j < b.N; j += workers {
					st, err := opens.open(say)
					if err != nil {
						b.Error(err)
						return
					}
					_ = st.CloseWrite()
					if n, err := io.Copy(io.Discard, struct{ io.Reader }{st}); n != 64 || err != nil {
						b.Error(n, err)
						return
					}
					release(st)
				}
			})
		}
		wg.Wait()
	})
}
