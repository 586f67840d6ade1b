// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const requestSize = 64

// upstreams are the addresses of what every chain ends at.
type upstreams struct{ tcp, http string }

// serveUpstreams starts them.
func serveUpstreams(b *testing.B) upstreams {
	b.Helper()
	addr, err := listen(serveUpstream)
	must.Succeed(b, err)
	answer := make([]byte, 1<<10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
	b.Cleanup(web.Close)
	return upstreams{tcp: addr, http: web.URL}
}

// serveUpstream answers a request of 64 bytes: its first eight bytes are the number of bytes that
// follow, the next eight the number to answer with after them, the third eight the bytes per second
// of the answer; if the first two are 0, it sends back everything that comes. If the fourth eight are
// not 0, it first sends a byte and waits for one.
func serveUpstream(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	var request [requestSize]byte
	if _, err := io.ReadFull(c, request[:]); err != nil {
		return
	}
	up, down := int64(binary.BigEndian.Uint64(request[:])), int64(binary.BigEndian.Uint64(request[8:]))
	if binary.BigEndian.Uint64(request[24:]) != 0 {
		if _, err := c.Write([]byte{0}); err != nil {
			return
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return
		}
	}
	if up == 0 && down == 0 {
		_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4<<10))
		return
	}
	if _, err := io.CopyN(io.Discard, c, up); err != nil {
		return
	}
	pace := pacer{rate: int64(binary.BigEndian.Uint64(request[16:]))}
	payload := make([]byte, min(down, pace.step()))
	for left := down; left > 0; left -= int64(len(payload)) {
		if _, err := c.Write(payload[:min(left, int64(len(payload)))]); err != nil {
			return
		}
		pace.wait(len(payload))
	}
}

// dialUpstream connects and sends a request.
func dialUpstream(addr string, up, down int64) (*net.TCPConn, error) {
	return dialUpstreamWith(addr, uint64(up), uint64(down))
}

// dialUpstreamWith is dialUpstream with the numbers that serveUpstream describes.
func dialUpstreamWith(addr string, numbers ...uint64) (*net.TCPConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := conn.(*net.TCPConn)
	var request [requestSize]byte
	for i, n := range numbers {
		binary.BigEndian.PutUint64(request[8*i:], n)
	}
	if _, err := c.Write(request[:]); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// exchange transfers bytes in both directions over a connection of its own, and checks that all of
// them arrived.
func exchange(addr string, up, down int64, buf []byte) error {
	c, err := dialUpstream(addr, up, down)
	if err != nil {
		return err
	}
	return transfer(c, up, down, buf)
}

// transfer is the rest of exchange.
func transfer(c *net.TCPConn, up, down int64, buf []byte) error {
	defer func() { _ = c.Close() }()
	for left := up; left > 0; left -= int64(len(buf)) {
		if _, err := c.Write(buf[:min(left, int64(len(buf)))]); err != nil {
			return err
		}
	}
	for got := int64(0); ; {
		n, err := c.Read(buf)
		got += int64(n)
		if errors.Is(err, io.EOF) && got == down {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%d of %d bytes came: %w", got, down, err)
		}
	}
}

// bulk moves bytes over so many connections at a time: downwards, or upwards.
func bulk(addr string, upwards bool, total int64, streams int) error {
	share := total / int64(streams)
	return inParallel(streams, streams, func() error {
		if upwards {
			return exchange(addr, share, 1, make([]byte, 256<<10))
		}
		return exchange(addr, 0, share, make([]byte, 256<<10))
	})
}

// bulkConns are open connections whose upstreams wait.
type bulkConns struct {
	conns    []*net.TCPConn
	up, down int64
}

// openBulk opens the connections for what bulk moves, each once the one before has reached its
// upstream.
func openBulk(addr string, upwards bool, total int64, streams int) (*bulkConns, error) {
	b := &bulkConns{down: total / int64(streams)}
	if upwards {
		b.up, b.down = b.down, 1
	}
	for range streams {
		c, err := dialUpstreamWith(addr, uint64(b.up), uint64(b.down), 0, 1)
		if err != nil {
			return nil, err
		}
		b.conns = append(b.conns, c)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// move moves their bytes.
func (b *bulkConns) move() error {
	var next atomic.Int64
	return inParallel(len(b.conns), len(b.conns), func() error {
		c := b.conns[next.Add(1)-1]
		if _, err := c.Write([]byte{0}); err != nil {
			return err
		}
		return transfer(c, b.up, b.down, make([]byte, 256<<10))
	})
}

// inParallel calls f n times, so many at a time, and returns the first error.
func inParallel(n, concurrent int, f func() error) error {
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, concurrent)
	var working sync.WaitGroup
	for range concurrent {
		working.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	working.Wait()
	close(errs)
	return <-errs
}

// setUps makes n connections, so many at a time: connect, 64 bytes there and back, end. It returns
// how long each took, in ms.
func setUps(addr string, n, concurrent int) ([]float64, error) {
	var mu sync.Mutex
	took := make([]float64, 0, n)
	buffers := sync.Pool{New: func() any { return new([1 << 10]byte) }}
	err := inParallel(n, concurrent, func() error {
		buf := buffers.Get().(*[1 << 10]byte)
		defer buffers.Put(buf)
		began := time.Now()
		if err := exchange(addr, 0, requestSize, buf[:]); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, ms(time.Since(began)))
		return nil
	})
	return took, err
}

// pingPong sends 1 KB there and back, n times over one connection, and returns how long each took,
// in ms.
func pingPong(addr string, n int) ([]float64, error) {
	c, err := dialUpstream(addr, 0, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 1<<10)
	took := make([]float64, 0, n)
	for range n {
		began := time.Now()
		if _, err := c.Write(buf); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return nil, err
		}
		took = append(took, ms(time.Since(began)))
	}
	return took, nil
}

// idle opens n connections, sends so many bytes there and back on each, and returns them.
func idle(addr string, n, size int) ([]net.Conn, error) {
	conns := make([]net.Conn, 0, n)
	there, back := make([]byte, size), make([]byte, size)
	for range n {
		c, err := dialUpstream(addr, 0, 0)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
		sent := make(chan error, 1)
		go func() {
			_, err := c.Write(there)
			sent <- err
		}()
		if _, err := io.ReadFull(c, back); err != nil {
			return conns, err
		}
		if err := <-sent; err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// requests sends n http requests, so many at a time, over connections that are kept or over one for
// each.
func requests(addr string, n, concurrent int, keep bool) error {
	transport := &http.Transport{DisableKeepAlives: !keep, MaxIdleConnsPerHost: concurrent}
	defer transport.CloseIdleConnections()
	return inParallel(n, concurrent, func() error { return request(transport, addr) })
}

// request sends one.
func request(transport *http.Transport, addr string) error {
	req, err := http.NewRequest(http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return err
	}
	req.Host = "web.bench"
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode != http.StatusOK || got != 1<<10 {
		return fmt.Errorf("status %d, %d bytes, %w", res.StatusCode, got, err)
	}
	return nil
}

// pingHTTP sends n requests one after the other over one connection, and returns how long each took,
// in ms.
func pingHTTP(addr string, n int) ([]float64, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	took := make([]float64, 0, n)
	for range n {
		began := time.Now()
		if err := request(transport, addr); err != nil {
			return nil, err
		}
		took = append(took, ms(time.Since(began)))
	}
	return took, nil
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
