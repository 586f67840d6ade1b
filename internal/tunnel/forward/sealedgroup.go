// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// sealedGroups are the sealed connections to http endpoints, by the connection of the tunnel that carries
// them. Only agents can tell their requests from each other, so agents are told to end those of a group
// with their next answer before the replica behind it stops, or this program does. The zero value is
// ready. It is safe for concurrent use.
type sealedGroups struct {
	mu       sync.Mutex
	stopping bool // stopping reports that this program is about to stop.
	all      map[context.Context]*sealedGroup
}

// sealedGroup are connections that will end together. It exists while there are some.
type sealedGroup struct {
	of      *sealedGroups
	name    string          // name that agents know; nothing else can guess it
	carrier context.Context // carrier ends when the replica is about to stop; the key of the group.
	forget  func() bool     // forget stops the wait for that.
	conns   map[*Conn]sealedTarget
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
	g, carrier := &r.groups, st.PeerDraining()
	g.mu.Lock()
	defer g.mu.Unlock()
	group := g.all[carrier]
	if group == nil {
		group = &sealedGroup{of: g, name: rand.Text(), carrier: carrier, conns: make(map[*Conn]sealedTarget)}
		group.forget = context.AfterFunc(carrier, func() { r.endGroup(group) })
		if g.all == nil {
			g.all = make(map[context.Context]*sealedGroup)
		}
		g.all[carrier] = group
	}
	c.group, group.conns[c] = group, sealedTarget{by, c.URL, c.Header.EndpointID}
	return group.name, group.drainsLocked()
}

// drainsLocked reports whether connections of the group are to end; the mutex of sealedGroups must be held.
func (g *sealedGroup) drainsLocked() bool { return g.of.stopping || g.carrier.Err() != nil }

// tellLate tells the agents of a connection whose header did not say yet that its group drains: the agent
// may have been told before it knew of the connection.
func (r *Relay) tellLate(c *Conn, told bool) {
	if c.group == nil || told {
		return
	}
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	if c.group.drainsLocked() {
		go r.tellAgents(c.group.name, c.group.conns[c])
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
	if delete(group.conns, c); len(group.conns) == 0 {
		group.forget()
		delete(group.of.all, group.carrier)
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
	targets := make(map[sealedTarget]struct{})
	for _, to := range group.conns {
		targets[to] = struct{}{}
	}
	r.groups.mu.Unlock()
	var telling errgroup.Group
	telling.SetLimit(maxTold)
	for to := range targets {
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
