// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	pathInterval   = time.Second     // between two looks at the way to the server
	pathPause      = 4 * time.Second // a longer pause between two looks means that the machine slept
	pathProbeLimit = 5 * time.Second // how long connections are watched after a change
)

var errPathChanged = errors.New("the peer has not answered since the network of this machine changed, or it slept")

// pathWatch notices that a machine has moved to another network, or that it slept: its connections
// may then be dead without an error.
type pathWatch struct {
	sourceOf func(remote string) netip.Addr // sourceOf returns the local address for a connection.
	remote   string                         // remote is the server's address in the latest session.
	source   netip.Addr                     // source is the local address for remote at the last look.
	looked   time.Time
}

// changed reports whether the local address for connections with the server is another one than at
// the last look, or the machine slept since. It reports false while there is no way to the server.
func (p *pathWatch) changed(now time.Time) bool {
	slept := !p.looked.IsZero() && now.Round(0).Sub(p.looked.Round(0)) > pathPause // by the wall clock
	p.looked = now
	if p.remote == "" {
		return slept
	}
	before := p.source
	p.source = p.sourceOf(p.remote)
	return p.source.IsValid() && (slept || p.source != before)
}

// follow makes the watch look at the way of a connection to another address of the server.
func (p *pathWatch) follow(local, remote net.Addr) {
	from, err := netip.ParseAddrPort(local.String())
	if err == nil && remote.String() != p.remote { // not a connection in memory
		p.remote, p.source = remote.String(), from.Addr()
	}
}

// sourceAddress returns the address from which this machine would connect with remote, an IP
// address and a port; zero when there is no route to it. Nothing is sent.
func sourceAddress(remote string) netip.Addr {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", remote)
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = conn.Close() }()
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return local.Addr()
}

// watchPath checks the session's connections at once after each change of the way to the server,
// until ctx is done.
func (c *Client) watchPath(ctx context.Context) {
	tick := time.NewTicker(pathInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var links []*link
		if s := c.Session(); s != nil {
			s.mu.Lock()
			links = s.links.all()
			if len(s.links.active) > 0 {
				conn := s.links.active[0].conn
				c.path.follow(conn.LocalAddr(), conn.RemoteAddr())
			}
			s.mu.Unlock()
		}
		if !c.path.changed(time.Now()) {
			continue
		}
		c.addresses.retry()
		c.carrier.forget()
		for _, l := range links {
			if l.pairs != nil {
				l.pairs.drop()
			}
			l.closeUnresponsive()
		}
		wake(c.pathChanged) // ends the wait before the next attempt
	}
}
