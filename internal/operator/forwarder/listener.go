// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// listen opens a port at Host, or on all IPv4 and IPv6 addresses.
func (o ListenOptions) listen(ctx context.Context, port int) (net.Listener, error) {
	return forward.Listen(ctx, net.JoinHostPort(o.Host, strconv.Itoa(port)))
}

// listeners are the open ports. All methods are safe for concurrent use.
type listeners struct {
	listen    func(ctx context.Context, port int) (net.Listener, error)
	relayConn func(c forward.Connection, to *portAssignment, stats *portStats) // blocks until the connection has ended
	stats     *metrics
	log       *slog.Logger
	timing    timing
	changed   *broadcaster // changed is woken when the status of a listener changes.

	byEndpoint atomic.Pointer[map[string]*listener] // listeners by endpoint; apply replaces the map

	mu     sync.Mutex
	byPort map[int]*listener
	closed bool
	conns  sync.WaitGroup // connections being served, and listeners' goroutines that may add some
}

// listener is one port while it serves one URL.
type listener struct {
	set        *listeners
	url        account.EndpointURL
	port       int
	assignment atomic.Pointer[portAssignment]
	stats      portStats
	ctx        context.Context
	stop       context.CancelFunc

	mu  sync.Mutex
	ln  net.Listener // open listener; nil while listening fails
	err error        // error of the last attempt to listen
}

// apply opens and closes listeners to match the assignments. It has tried to open every new one
// when it returns. A listener whose port serves another URL now is closed first, which resets the
// connections in its accept queue.
func (s *listeners) apply(assignments map[int]portAssignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for port, l := range s.byPort {
		if c, ok := assignments[port]; !ok || c.EndpointURL != l.url {
			l.close()
			delete(s.byPort, port)
			s.log.Info("stopped listening", "port", port, "url", l.url.String())
		}
	}
	for port, c := range assignments {
		if l := s.byPort[port]; l != nil {
			l.assignment.Store(&c)
			continue
		}
		s.byPort[port] = s.open(port, c)
	}
	hosts, endpoints := make(map[string]struct{}, len(assignments)), make(map[string]*listener, len(assignments))
	for port, c := range assignments {
		hosts[c.Host] = struct{}{}
		if c.endpointID != "" {
			endpoints[c.endpointID] = s.byPort[port]
		}
	}
	s.byEndpoint.Store(&endpoints)
	s.stats.retainHosts(hosts)
	s.changed.broadcast()
}

// recordRequestLine records what the edge reports about an http request of this forwarder. It does
// not block.
func (s *listeners) recordRequestLine(line tunnel.RequestLine) {
	endpoints := s.byEndpoint.Load()
	if endpoints == nil {
		return
	}
	if l := (*endpoints)[line.EndpointID]; l != nil {
		l.stats.recordRequestResult(account.Code(line.Code), l.url.String())
	}
}

func (s *listeners) open(port int, c portAssignment) *listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{set: s, url: c.EndpointURL, port: port, ctx: ctx, stop: stop}
	l.stats.hostStats = s.stats.statsOf(c.Host)
	l.assignment.Store(&c)
	if l.tryListen() {
		s.log.Info("listening", "port", port, "url", c.String())
	} else {
		s.log.Warn("listening failed and will be tried again", "port", port, "url", c.String(), "error", l.err)
	}
	s.conns.Go(l.run)
	return l
}

// close stops accepting. Connections that are being relayed continue.
func (s *listeners) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.byPort {
		l.close()
	}
	clear(s.byPort)
}

// wait waits until every accepted connection has ended, or ctx is done. Call it after close.
func (s *listeners) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.conns.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryListen tries to listen once and reports whether it succeeded.
func (l *listener) tryListen() bool {
	ln, err := l.set.listen(l.ctx, l.port)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.ctx.Err() != nil { // closed meanwhile
		_ = ln.Close()
		return false
	}
	l.ln, l.err = ln, err
	return err == nil
}

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop()
	if l.ln != nil {
		_ = l.ln.Close()
	}
}

// run listens, with retries, and accepts until the listener is closed.
func (l *listener) run() {
	for pause := l.set.timing.listenRetry; l.openListener() == nil; pause = min(2*pause, l.set.timing.listenRetryMax) {
		if !timer.Sleep(l.ctx, pause) {
			return
		}
		if l.tryListen() {
			l.set.log.Info("listening", "port", l.port, "url", l.url.String())
		}
		l.set.changed.broadcast()
	}
	l.accept(l.openListener())
}

// accept accepts connections until the listener is closed. It retries errors such as a lack of file
// descriptors.
func (l *listener) accept(ln net.Listener) {
	const firstPause, maxPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			pause = firstPause
			l.handle(c)
		case l.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			l.stats.recordFailure(reasonAccept, err.Error())
			if pause == firstPause {
				l.set.log.Warn("accepting failed and will be tried again", "port", l.port, "url", l.url.String(),
					"error", err)
			}
			if !timer.Sleep(l.ctx, pause) {
				return
			}
			pause = min(2*pause, maxPause)
		}
	}
}

// handle relays an accepted connection, unless the port was assigned anew meanwhile.
func (l *listener) handle(accepted net.Conn) {
	c, ok := accepted.(forward.Connection)
	switch {
	case !ok:
		_ = accepted.Close()
		return
	case l.ctx.Err() != nil:
		forward.Reset(c)
		return
	}
	to := l.assignment.Load()
	l.set.conns.Go(func() { l.set.relayConn(c, to, &l.stats) })
}

// openListener returns the open listener, or nil.
func (l *listener) openListener() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ln
}

func (s *listeners) status() []ListenerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := make([]ListenerStatus, 0, len(s.byPort))
	for _, port := range slices.Sorted(maps.Keys(s.byPort)) {
		result = append(result, s.byPort[port].status())
	}
	return result
}

func (l *listener) status() ListenerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := ListenerStatus{
		Port: l.port, Hostname: l.url.Host, ServicePort: l.url.Port, Scheme: l.url.Scheme, URL: l.url.String(),
		Endpoint: l.assignment.Load().endpointID, Listening: l.ln != nil,
	}
	l.stats.fill(&st)
	if l.err != nil {
		st.Error = fmt.Sprintf("listening on port %d: %v", l.port, l.err)
	}
	return st
}

// portAssignment is the URL that a target port serves and the endpoint that its streams name: the
// first one with this URL; the edge chooses among a pool. Without an endpoint the port is served as
// one whose agent is offline.
type portAssignment struct {
	account.EndpointURL
	endpointID string
}

// target returns what rules about callers select.
func (p *portAssignment) target() endpointaccess.Target {
	return endpointaccess.TargetOf(p.Host, p.Port)
}

// assignPorts returns the assignment of every port to listen on. If several objects have one port,
// it is the oldest one's, even if the port is released there: a pod may still have an old
// connection. A released port has no listener.
func assignPorts(objects []*v1alpha1.BoundEndpoint) map[int]portAssignment {
	assigned := make(map[int32]struct{}, len(objects))
	result := make(map[int]portAssignment, len(objects))
	for _, object := range slices.SortedFunc(slices.Values(objects), v1alpha1.CompareAge) {
		for _, port := range object.Spec.Ports {
			if _, taken := assigned[port.TargetPort]; taken {
				continue
			}
			assigned[port.TargetPort] = struct{}{}
			if object.Spec.State == v1alpha1.StateReleased || port.State == v1alpha1.StateReleased {
				continue
			}
			u := account.EndpointURL{Scheme: port.Scheme, Host: object.Spec.Hostname(), Port: int(port.Port)}
			result[int(port.TargetPort)] = portAssignment{EndpointURL: u, endpointID: firstEndpointID(u, &object.Spec)}
		}
	}
	return result
}

// firstEndpointID returns the id of the first endpoint with the URL, or "".
func firstEndpointID(want account.EndpointURL, spec *v1alpha1.BoundEndpointSpec) string {
	binding := account.BindingKubernetes
	if spec.Cluster != "" {
		binding = account.BindingClusterset
	}
	for _, ref := range spec.Endpoints {
		if u, err := account.ParseBindingURL(binding, ref.URL); err == nil && u == want {
			return ref.ID
		}
	}
	return ""
}
