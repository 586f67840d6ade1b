// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// requestTimeout bounds each request of a load.
const requestTimeout = 20 * time.Second

// target is where requests of a load go. Its connections are used in turn.
type target struct {
	name string
	addr string      // host:port that is connected to
	host string      // of the request
	key  string      // an API key: a list of operators is requested instead of /hello
	tls  *tls.Config // nil = without TLS
	kept bool        // connections are kept; else each request has one of its own

	mu   sync.Mutex
	idle []*keptConn // the one that is unused for the longest time is the first
}

type keptConn struct {
	net.Conn
	raw *net.TCPConn // below TLS
	in  *bufio.Reader
}

// request sends a GET and reads the answer. Nothing is tried again: any failure is
// the service's.
func (g *target) request(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := g.conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	keep, err := g.exchange(ctx, c)
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil || !keep {
		_ = c.Close()
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = append(g.idle, c)
	return nil
}

func (g *target) conn(ctx context.Context) (*keptConn, error) {
	for c := g.takeIdle(); c != nil; c = g.takeIdle() {
		if c.isOpen() {
			return c, nil
		}
		_ = c.Close()
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.addr)
	if err != nil {
		return nil, err
	}
	raw := c.(*net.TCPConn)
	if g.tls != nil {
		secure := tls.Client(c, g.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		c = secure
	}
	return &keptConn{c, raw, bufio.NewReader(c)}, nil
}

// takeIdle returns the connection that is unused for the longest time, or nil.
func (g *target) takeIdle() *keptConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.idle) == 0 {
		return nil
	}
	c := g.idle[0]
	g.idle = g.idle[1:]
	return c
}

// isOpen reports whether nothing came on an idle connection: neither its end nor a byte. HTTP lets
// either side close an idle connection, and clients look before they send.
func (c *keptConn) isOpen() bool {
	raw, err := c.raw.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		silent = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && silent
}

// exchange returns keep = true when the connection serves further requests.
func (g *target) exchange(ctx context.Context, c *keptConn) (keep bool, err error) {
	path := "/hello"
	if g.key != "" {
		path = "/kubernetes_operators"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.host+path, nil)
	if err != nil {
		return false, err
	}
	r.Close = !g.kept
	if g.key != "" {
		r.Header = http.Header{"Authorization": {"Bearer " + g.key}, "Service-Version": {"2"}}
	}
	if err := r.Write(c); err != nil {
		return false, fmt.Errorf("sending: %w", err)
	}
	res, err := http.ReadResponse(c.in, r)
	if err != nil {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return false, fmt.Errorf("reading the body: %w", err)
	}
	if res.StatusCode != http.StatusOK || string(body) != "hello" && g.key == "" {
		return false, fmt.Errorf("status %d: %.200s", res.StatusCode, body)
	}
	return g.kept && !res.Close, nil
}

// closeIdle closes the connections that no request uses.
func (g *target) closeIdle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.idle {
		_ = c.Close()
	}
	g.idle = nil
}

// outcome is a request of a load that has ended.
type outcome struct {
	target      *target
	began, done time.Time
	err         error
}

func (o outcome) took() time.Duration { return o.done.Sub(o.began) }

// load sends requests to targets in turn, at a rate that does not depend on the answers.
type load struct {
	t       testing.TB
	targets []*target
	stop    func() // stops sending and waits for the answers

	mu       sync.Mutex
	outcomes []outcome
}

// startLoad sends so many requests a second until the test ends.
func startLoad(t testing.TB, rate int, targets ...*target) *load {
	l := &load{t: t, targets: targets}
	sending, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var requests sync.WaitGroup
	requests.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-sending.Done():
				return
			case <-tick.C:
			}
			g := targets[i%len(targets)]
			requests.Go(func() {
				o := outcome{target: g, began: time.Now()}
				o.err = g.request(context.WithoutCancel(sending))
				o.done = time.Now()
				l.mu.Lock()
				defer l.mu.Unlock()
				l.outcomes = append(l.outcomes, o)
			})
		}
	})
	l.stop = func() {
		cancel()
		requests.Wait()
		for _, g := range targets {
			g.closeIdle()
		}
	}
	t.Cleanup(l.stop)
	return l
}

// all returns the requests that have ended.
func (l *load) all() []outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.outcomes)
}

// failed returns the requests that have failed, in the order of their beginning.
func (l *load) failed() []outcome {
	failed := slices.DeleteFunc(l.all(), func(o outcome) bool { return o.err == nil })
	slices.SortFunc(failed, func(a, b outcome) int { return a.began.Compare(b.began) })
	return failed
}

// requireNoFailure reports each of the first requests that have failed.
func (l *load) requireNoFailure(what string) {
	l.t.Helper()
	failed := l.failed()
	for _, o := range failed[:min(len(failed), 10)] {
		l.t.Errorf("%s: a request to %s at %s failed after %s: %v", what, o.target.name,
			o.began.Format("15:04:05.000"), o.took().Round(time.Millisecond), o.err)
	}
	if len(failed) > 0 {
		l.t.Errorf("%s: %d of %d requests failed", what, len(failed), len(l.all()))
	}
	l.t.Logf("%s:\n%s", what, l)
}

// window returns how long after an event requests failed, or took longer than slow: the beginning
// of the last of them. It is 0 if none did.
func (l *load) window(event time.Time, slow time.Duration) time.Duration {
	var last time.Duration
	for _, o := range l.all() {
		if o.done.After(event) && (o.err != nil || o.took() > slow) {
			last = max(last, o.began.Sub(event))
		}
	}
	return last
}

// wait waits until so many more requests have been answered.
func (l *load) wait(more int) {
	l.t.Helper()
	until := len(l.all()) + more
	deadline := time.After(time.Minute)
	for len(l.all()) < until {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			l.t.Fatalf("%d requests were not answered within a minute", more)
		}
	}
}

// String returns a line for each target.
func (l *load) String() string {
	took, failed := map[string][]time.Duration{}, map[string]int{}
	for _, o := range l.all() {
		took[o.target.name] = append(took[o.target.name], o.took())
		if o.err != nil {
			failed[o.target.name]++
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(took)) {
		fmt.Fprintf(&b, "%-24s %6d requests, %4d failed, %s\n", name, len(took[name]), failed[name],
			newQuantiles(took[name]))
	}
	return b.String()
}

// quantiles are durations, sorted.
type quantiles []time.Duration

func newQuantiles(d []time.Duration) quantiles { return slices.Sorted(slices.Values(d)) }

// at returns the quantile of so many percent; 0 of no durations.
func (q quantiles) at(percent int) time.Duration {
	if len(q) == 0 {
		return 0
	}
	return q[(len(q)-1)*percent/100]
}

// String returns median, p99 and maximum.
func (q quantiles) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", q.at(50).Round(10*time.Microsecond),
		q.at(99).Round(10*time.Microsecond), q.at(100).Round(10*time.Microsecond))
}
