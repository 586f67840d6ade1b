// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// host is the interface on which ports listen: what reaches it calls with this program's authtoken.
const host = "127.0.0.1"

// listener is the port of one endpoint. It implements forward.Stats.
type listener struct {
	Target

	net.Listener
	observer agent.Observer
	failing  atomic.Pointer[string] // cause of the last call that failed; nil after one that did not
}

// listen opens the port of the target.
func listen(ctx context.Context, to Target, observer agent.Observer) (*listener, error) {
	open := func(port int) (net.Listener, error) {
		return forward.Listen(ctx, net.JoinHostPort(host, strconv.Itoa(port)))
	}
	l := &listener{Target: to, observer: observer}
	var err error
	if to.Port != 0 {
		if l.Listener, err = open(to.Port); err != nil {
			return nil, fmt.Errorf("listening for %s: %w; choose another port with --port", to.URL.String(), err)
		}
		return l, nil
	}
	if l.Listener, err = open(to.URL.Port); err != nil {
		if l.Listener, err = open(0); err != nil {
			return nil, fmt.Errorf("listening for %s: %w", to.URL.String(), err)
		}
	}
	return l, nil
}

// address returns where the endpoint is called.
func (l *listener) address() string { return l.URL.Scheme + "://" + l.Addr().String() }

// Opened implements forward.Stats, as Moved does.
func (l *listener) Opened(time.Time) { l.failing.Store(nil) }

// Moved records nothing.
func (*listener) Moved(int64, int64, bool) {}

// reportFailure reports a call that failed, once for each cause.
func (l *listener) reportFailure(f *forward.Failure) {
	if f.Reason == forward.ReasonClient {
		return
	}
	if last := l.failing.Swap(&f.Msg); last == nil || *last != f.Msg {
		l.observer.Observe(agent.CallFailed{URL: l.URL.String(), Cause: f.Msg})
	}
}

// accept relays connections until ctx is done. It retries errors such as a lack of file descriptors.
func (c *connector) accept(ctx context.Context, l *listener) {
	for {
		accepted, err := l.Accept()
		switch {
		case err == nil:
			c.conns.Go(func() { c.serve(accepted.(*net.TCPConn), l) })
		case ctx.Err() != nil:
			return
		default:
			c.opt.Logger.Warn("accepting failed and is tried again", "url", l.URL.String(), "error", err)
			timer.Sleep(ctx, time.Second)
		}
	}
}

// serve relays one connection. It closes it.
func (c *connector) serve(accepted *net.TCPConn, l *listener) {
	stack.Grow8KiB()
	c.active.Add(1)
	defer c.active.Add(-1)
	conn := &forward.Conn{Stats: l,
		Header: tunnel.OpenHeader{Scheme: l.URL.Scheme, Host: l.URL.Host, Port: l.URL.Port}}
	c.relay.Init(conn, accepted, l.URL)
	defer conn.Release()
	if failure := c.relayConn(conn); failure != nil {
		l.reportFailure(failure)
		c.relay.Fail(conn, failure)
	}
}

// relayConn relays a connection until it has ended, sealed if the options say so. It returns why no
// stream opened, or nil.
func (c *connector) relayConn(conn *forward.Conn) *forward.Failure {
	if c.opt.Trust == nil {
		return c.relay.Serve(conn)
	}
	to, failure := c.relay.OpenSealed(conn, c.opt.Trust)
	if failure == nil {
		c.relay.JoinSealed(conn, to)
	}
	return failure
}
