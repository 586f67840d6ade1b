// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/frozen"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const (
	pollInterval = 50 * time.Millisecond
	pollTimeout  = 500 * time.Millisecond
	// maxTimeouts is how many polls in a row may time out before a backend counts as not ready, as
	// balancers' thresholds have it: a busy machine answers late, too.
	maxTimeouts = 3
)

// A front is one of the balancer's listeners.
const (
	frontService = iota // API and tunnels
	frontHTTP           // public listeners
	frontHTTPS
	fronts
)

// balancer is a TCP load balancer with several fronts. Each connection goes to the next backend
// that is ready, or to the one that its client is pinned to.
type balancer struct {
	t       testing.TB
	addrs   [fronts]string
	running sync.WaitGroup
	ctx     context.Context // until the test ends

	mu       sync.Mutex
	backends []*backend
	next     [fronts]int
	pins     map[netip.Addr]int // backend by client address
}

// backend is a server behind the balancer.
type backend struct {
	ready string // URL of its readiness
	addrs [fronts]string
	link  frozen.Process // stopped while black-holed

	mu    sync.Mutex // protects the fields below
	up    bool       // the last poll found it ready
	cut   bool
	holed bool
	delay time.Duration              // of each write in both directions
	conns map[*balancedConn]struct{} // open
}

// balancedConn is a connection of a client and the one to the backend.
type balancedConn struct{ client, server *net.TCPConn }

func (c *balancedConn) reset() {
	for _, conn := range []*net.TCPConn{c.client, c.server} {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
}

// startBalancer listens on loopback. Backends are added by add; polling begins with that.
func startBalancer(t testing.TB) *balancer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b := &balancer{t: t, ctx: ctx, pins: map[netip.Addr]int{}}
	var listeners []net.Listener
	for front := range fronts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		listeners = append(listeners, l)
		b.addrs[front] = l.Addr().String()
		b.running.Go(func() { b.accept(l, front) })
	}
	t.Cleanup(func() {
		cancel()
		for _, l := range listeners {
			_ = l.Close()
		}
		for i := range b.all() {
			b.heal(i)
			b.reset(i)
		}
		b.running.Wait()
	})
	return b
}

// add adds a backend, whose number is how many there were before.
func (b *balancer) add(ready string, addrs [fronts]string) {
	to := &backend{ready: ready, addrs: addrs, conns: map[*balancedConn]struct{}{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, to)
	b.running.Go(func() { to.poll(b.ctx) })
}

// all returns the backends.
func (b *balancer) all() []*backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.backends)
}

// poll asks for the backend's readiness until ctx is done.
func (to *backend) poll(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: pollTimeout}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for timeouts := 0; ; {
		up, late := to.isReady(ctx, client)
		if timeouts++; !late {
			timeouts = 0
		}
		to.mu.Lock()
		up = up || to.up && late && timeouts < maxTimeouts
		to.up = up
		to.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// isReady reports whether the backend says that it is ready, or late: it did not answer in time.
func (to *backend) isReady(ctx context.Context, client *http.Client) (up, late bool) {
	to.mu.Lock()
	cut, holed := to.cut, to.holed
	to.mu.Unlock()
	if holed {
		select {
		case <-time.After(pollTimeout):
		case <-ctx.Done():
		}
	}
	if cut || holed {
		return false, false
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.ready, nil)
	if err != nil {
		return false, false
	}
	res, err := client.Do(r)
	if err != nil {
		var timeout net.Error
		return false, errors.As(err, &timeout) && timeout.Timeout()
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK, false
}

func (b *balancer) accept(l net.Listener, front int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b.running.Go(func() { b.serve(c.(*net.TCPConn), front) })
	}
}

// serve joins a client with a backend. When one refuses the connection, the next is tried, unless
// the client is pinned.
func (b *balancer) serve(client *net.TCPConn, front int) {
	defer func() { _ = client.Close() }()
	for range len(b.all()) + 1 {
		to, pinned := b.choose(client, front)
		if to == nil {
			return
		}
		conn, err := b.dial(to, front)
		if err != nil && !pinned {
			continue
		}
		if err == nil {
			b.join(to, &balancedConn{client: client, server: conn})
		}
		return
	}
}

// choose returns the backend that the client is pinned to, or the next that is ready. When none is,
// it returns the next that may answer, as balancers of clouds do: on a busy machine all may just be
// late.
func (b *balancer) choose(client net.Conn, front int) (to *backend, pinned bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.pins[addressOf(client)]; ok {
		return b.backends[i], true
	}
	for i := range 2 * len(b.backends) {
		to := b.backends[b.next[front]%len(b.backends)]
		b.next[front]++
		to.mu.Lock()
		may := !to.cut && (to.up || i >= len(b.backends) && !to.holed)
		to.mu.Unlock()
		if may {
			return to, false
		}
	}
	return nil, false
}

func (b *balancer) dial(to *backend, front int) (*net.TCPConn, error) {
	to.mu.Lock()
	cut := to.cut
	to.mu.Unlock()
	if cut {
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.addrs[front])
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// join copies in both directions until one side or the link ends.
func (b *balancer) join(to *backend, c *balancedConn) {
	to.mu.Lock()
	to.conns[c] = struct{}{}
	to.mu.Unlock()
	defer func() {
		to.mu.Lock()
		delete(to.conns, c)
		to.mu.Unlock()
		_, _ = c.client.Close(), c.server.Close()
	}()
	stop := context.AfterFunc(b.ctx, c.reset)
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { to.copy(c.server, c.client) })
	both.Go(func() { to.copy(c.client, c.server) })
	both.Wait()
}

// copy copies from a connection to the other, through the link.
func (to *backend) copy(dst, src *net.TCPConn) {
	through, b := to.link.Conn(dst), make([]byte, 32<<10)
	for {
		n, err := src.Read(b)
		to.mu.Lock()
		delay := to.delay
		to.mu.Unlock()
		if delay > 0 && n > 0 {
			time.Sleep(delay)
		}
		if n > 0 {
			if _, err := through.Write(b[:n]); err != nil {
				_ = src.Close()
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = dst.CloseWrite()
			} else {
				_ = dst.SetLinger(0) // as the other side has aborted it
				_ = dst.Close()
			}
			return
		}
	}
}

// reset aborts the open connections of a backend.
func (b *balancer) reset(i int) {
	to := b.all()[i]
	to.mu.Lock()
	defer to.mu.Unlock()
	for c := range to.conns {
		c.reset()
	}
}

// cut aborts the open connections of a backend and refuses new ones until heal.
func (b *balancer) cut(i int) {
	to := b.all()[i]
	to.mu.Lock()
	to.cut = true
	to.mu.Unlock()
	b.reset(i)
}

// blackHole carries no byte to and from a backend until heal; connections stay open.
func (b *balancer) blackHole(i int) {
	to := b.all()[i]
	to.mu.Lock()
	to.holed = true
	to.mu.Unlock()
	to.link.Stop()
}

// delay delays each write to and from a backend until heal.
func (b *balancer) delay(i int, d time.Duration) {
	to := b.all()[i]
	to.mu.Lock()
	defer to.mu.Unlock()
	to.delay = d
}

// heal ends the faults of a backend.
func (b *balancer) heal(i int) {
	to := b.all()[i]
	to.mu.Lock()
	to.cut, to.holed, to.delay = false, false, 0
	to.mu.Unlock()
	to.link.Continue()
}

// pin sends the connections of a client to one backend, also while it is not ready.
func (b *balancer) pin(client netip.Addr, i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pins[client] = i
}

// unpin ends pin. Open connections stay where they are.
func (b *balancer) unpin(client netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pins, client)
}

// open returns how many connections a backend has.
func (b *balancer) open(i int) int {
	to := b.all()[i]
	to.mu.Lock()
	defer to.mu.Unlock()
	return len(to.conns)
}

// openFrom returns how many connections of a client a backend has.
func (b *balancer) openFrom(client netip.Addr, i int) (n int) {
	to := b.all()[i]
	to.mu.Lock()
	defer to.mu.Unlock()
	for c := range to.conns {
		if addressOf(c.client) == client {
			n++
		}
	}
	return n
}

// clientsOf returns the clients that have connections with a backend.
func (b *balancer) clientsOf(i int) map[netip.Addr]bool {
	to := b.all()[i]
	to.mu.Lock()
	defer to.mu.Unlock()
	clients := make(map[netip.Addr]bool, len(to.conns))
	for c := range to.conns {
		clients[addressOf(c.client)] = true
	}
	return clients
}

// addressOf returns the address of a connection's client.
func addressOf(c net.Conn) netip.Addr { return c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap() }

func (b *balancer) isUp(i int) bool {
	to := b.all()[i]
	to.mu.Lock()
	defer to.mu.Unlock()
	return to.up
}

// waitUp waits until the balancer finds a backend ready, or not ready.
func (b *balancer) waitUp(i int, up bool) {
	b.t.Helper()
	wait.Until(b.t, "readiness of a backend to be noticed", func() bool { return b.isUp(i) == up })
}
