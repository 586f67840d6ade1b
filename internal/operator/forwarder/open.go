// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// clientConn is an accepted connection with the caller. It implements forward.Stats.
type clientConn struct {
	forward.Conn

	target  *portAssignment
	stats   *portStats
	pod     *caller.Pod      // pod that opened the connection; nil: unknown
	revoked atomic.Bool      // revoked is set when a change of rules or labels ended the connection.
	failure *forward.Failure // reason why no stream opened; nil while one may
	sealing *sealing         // nil unless the connection is sealed

	trustsForwarding atomic.Bool // trustsForwarding reports that the rules believe the caller's forwarding headers.
}

// clientIP returns the client's address; it is invalid for a connection without one.
func (c *clientConn) clientIP() netip.Addr {
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return from.AddrPort().Addr().Unmap()
}

// caller returns NAMESPACE/NAME of the pod, or the address of an unknown caller.
func (c *clientConn) caller() string {
	if c.pod == nil {
		return c.clientIP().String()
	}
	return c.pod.Namespace + "/" + c.pod.Name
}

// Opened implements forward.Stats, as Moved does.
func (c *clientConn) Opened(at time.Time) {
	c.stats.recordSuccess(at)
	c.sealing.recordOpened(c.stats)
}

// Moved counts bytes and aborts.
func (c *clientConn) Moved(fromClient, toClient int64, aborted bool) {
	c.stats.addBytes(fromClient, toClient)
	if aborted && !c.revoked.Load() {
		c.stats.countFailure(reasonAborted)
	}
}

// relayConn relays one accepted connection. It closes c.
func (f *forwarder) relayConn(c forward.Connection, to *portAssignment, stats *portStats) {
	stack.Grow8KiB()
	stats.begin()
	defer stats.end()
	cl := f.newClientConn(c, to, stats)
	defer f.end(cl)
	if cl.failure == nil {
		cl.failure = f.serve(cl)
	}
	f.reportFailure(cl)
}

// serve relays the connection until it has ended, sealed if the rules of trust say so. It returns why
// no stream opened, or nil.
func (f *forwarder) serve(c *clientConn) *forward.Failure {
	trust, failure := f.sealing.trustOf(f.connCtx, c.URL, c.SessionDeadline)
	switch {
	case failure != nil:
		return failure
	case trust != nil:
		c.sealing = f.sealing
		conn, failure := f.relay.OpenSealed(&c.Conn, trust)
		if f.sealing.allowsPlain(c, failure) {
			c.sealing = nil
			return f.relay.Serve(&c.Conn)
		}
		f.sealing.recordRefusal(c, failure)
		if failure != nil {
			return failure
		}
		f.sealing.recordKey(c, conn)
		defer f.sealing.watch(conn, c.URL, trust)()
		f.relay.JoinSealed(&c.Conn, conn)
		return nil
	}
	return f.relay.Serve(&c.Conn)
}

// end frees what a connection uses that is no longer served.
func (f *forwarder) end(c *clientConn) {
	if f.access != nil {
		f.access.live.remove(c)
	}
	c.Release()
}

func (f *forwarder) newClientConn(c forward.Connection, to *portAssignment, stats *portStats) *clientConn {
	cl := &clientConn{target: to, stats: stats}
	f.relay.Init(&cl.Conn, c, to.EndpointURL)
	cl.Stats = cl
	if to.endpointID != "" || f.access.restricts(to) { // else no stream names the pod
		cl.pod = f.identifyPod(cl)
	}
	if f.access != nil {
		if cl.failure = f.access.admit(f.connCtx, cl); cl.failure != nil {
			return cl
		}
	}
	if to.endpointID == "" {
		cl.failure = forward.NewFailure(trafficerror.OfRefusal(tunnel.RefusedOffline), to.EndpointURL)
		return cl
	}
	cl.Header = tunnel.OpenHeader{
		EndpointID: to.endpointID, Scheme: to.Scheme, Host: to.Host, Port: to.Port, ClientAddr: c.RemoteAddr().String(),
		TrustsForwarding: cl.trustsForwarding.Load(),
	}
	if cl.pod != nil {
		cl.Header.Pod = &cl.pod.PodIdentity
	}
	return cl
}

// reportFailure records the failure and ends the connection.
func (f *forwarder) reportFailure(c *clientConn) {
	if c.failure != nil {
		if c.failure.Code != account.CodeAccessDenied { // which is counted, and no failure of the endpoint
			c.stats.recordFailure(c.failure.Reason, c.failure.Msg+c.failure.Detail)
		}
		f.relay.Fail(&c.Conn, c.failure)
	}
}

// identifyPod returns the pod that opened the connection, or nil.
func (f *forwarder) identifyPod(c *clientConn) *caller.Pod {
	ip := c.clientIP()
	if f.options.Pods == nil || !ip.IsValid() {
		return nil
	}
	ctx, cancel := context.WithDeadline(f.connCtx, c.SessionDeadline)
	defer cancel()
	return f.options.Pods.Lookup(ctx, ip)
}
