// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"crypto/rand"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// sealedGroups are the sealed connections to http endpoints, by what carries them: a connection of the
// tunnel. Only agents can tell their requests from each other, so agents are told to end those of a
// group with their next answer before the replica behind it stops, or this program does. The zero value is
// ready. It is safe for concurrent use.
type sealedGroups struct {
	mu       sync.Mutex
	stopping bool // stopping reports that this program is about to stop.
	all      map[<-chan struct{}]*sealedGroup
}

// sealedGroup are connections that will end together. It exists while there are some.
type sealedGroup struct {
	of      *sealedGroups
	name    string          // name that agents know; nothing else can guess it
	drained <-chan struct{} // drained is closed when the replica is about to stop; the key of the group.
	empty   chan struct{}   // empty is closed with the last connection.
	conns   map[sealedTarget]int
}

// sealedTarget is where connections lead, by what trust.
type sealedTarget struct {
	trust      *sealed.Trust
	url        account.EndpointURL
	endpointID string
}

// maxTold bounds the endpoints whose agents are told at a time.
const maxTold = 16

// joinGroup adds a connection to the group of the stream that carries it now, and returns what its header
// says of that.
func (r *Relay) joinGroup(c *Conn, st *tunnel.Stream, by *sealed.Trust) (name string, draining bool) {
	c.leaveGroup()
	g := &r.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	drained := st.PeerDraining()
	group := g.all[drained]
	if group == nil {
		group = &sealedGroup{of: g, name: rand.Text(), drained: drained, empty: make(chan struct{}),
			conns: make(map[sealedTarget]int)}
		if g.all == nil {
			g.all = make(map[<-chan struct{}]*sealedGroup)
		}
		g.all[drained] = group
		go func() {
			select {
			case <-group.drained:
				r.endGroup(group)
			case <-group.empty:
			}
		}()
	}
	c.group, c.to = group, sealedTarget{by, c.URL, c.Header.EndpointID}
	group.conns[c.to]++
	return group.name, group.drainsLocked()
}

// drainsLocked reports whether connections of the group are to end; the mutex of sealedGroups must be held.
func (g *sealedGroup) drainsLocked() bool {
	select {
	case <-g.drained:
		return true
	default:
		return g.of.stopping
	}
}

// tellLate tells the agents of a connection whose header did not say yet that its group drains: the agent
// may have been told before it knew of the connection.
func (r *Relay) tellLate(c *Conn, told bool) {
	if c.group == nil || told {
		return
	}
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	if c.group.drainsLocked() {
		go r.tellAgents(c.group.name, c.to)
	}
}

// leaveGroup removes the connection from its group, if it has one.
func (c *Conn) leaveGroup() {
	group := c.group
	if group == nil {
		return
	}
	c.group = nil
	group.of.mu.Lock()
	defer group.of.mu.Unlock()
	if group.conns[c.to]--; group.conns[c.to] == 0 {
		delete(group.conns, c.to)
	}
	if len(group.conns) == 0 {
		delete(group.of.all, group.drained)
		close(group.empty)
	}
}

// Drain lets sealed connections to http endpoints end with their next answer, those that begin later
// with their first one. Edges do the same for others; see tunnel.Session.Drain.
func (r *Relay) Drain() {
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	r.groups.stopping = true
	for _, group := range r.groups.all {
		go r.endGroup(group)
	}
}

// endGroup tells the agents of a group's connections.
func (r *Relay) endGroup(group *sealedGroup) {
	r.groups.mu.Lock()
	targets := slices.Collect(maps.Keys(group.conns))
	r.groups.mu.Unlock()
	var telling errgroup.Group
	telling.SetLimit(maxTold)
	for _, to := range targets {
		telling.Go(func() error {
			r.tellAgents(group.name, to)
			return nil
		})
	}
	_ = telling.Wait() // nothing fails: who cannot be told has no connection that works
}

// tellAgents tells all agents of an endpoint, one after the other, that a group drains, each by a sealed
// connection without a request.
func (r *Relay) tellAgents(group string, to sealedTarget) {
	c := &Conn{URL: to.url, acceptedAt: time.Now(), Header: tunnel.OpenHeader{EndpointID: to.endpointID,
		Scheme: to.url.Scheme, Host: to.url.Host, Port: to.url.Port, Sealed: true}}
	until := c.acceptedAt.Add(r.Timing.OpenTimeout)
	c.SessionDeadline = until
	ctx, cancel := context.WithDeadline(r.Context, until)
	defer cancel()
	var tried []string
	for range maxSealedAttempts {
		c.Header.Tried = strings.Join(tried, ",")
		st, failure := r.openSealedStream(c)
		if failure != nil {
			return
		}
		st.until = until
		conn, err := st.connect(ctx, to.trust, sealed.Header{URL: to.url, Group: group, Draining: true})
		if err == nil {
			_ = st.SetReadDeadline(until)
			_ = conn.CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
		if st.hint == "" || slices.Contains(tried, st.hint) {
			return // there is no other
		}
		tried = append(tried, st.hint)
	}
}
