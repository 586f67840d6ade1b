// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"slices"
	"time"
)

// linkSet has the connections of a session, and chooses among them. The session's mutex guards it.
type linkSet struct {
	active   []*link // active connections take new streams.
	retiring []*link // retiring connections take none any more.
	live     int     // live counts the connections that have not ended, at least those of both lists.
}

// all returns the connections of both lists.
func (c *linkSet) all() []*link { return slices.Concat(c.active, c.retiring) }

// drop removes connections that have ended from the choice for new streams.
func (c *linkSet) drop(hasEnded func(*link) bool) { c.active = slices.DeleteFunc(c.active, hasEnded) }

// remove removes a connection that has ended, and reports whether it was the last one.
func (c *linkSet) remove(l *link) (last bool) {
	isIt := func(o *link) bool { return o == l }
	c.active, c.retiring = slices.DeleteFunc(c.active, isIt), slices.DeleteFunc(c.retiring, isIt)
	c.live--
	return c.live == 0
}

// detach removes l from the choice for new streams, for retirement.
func (c *linkSet) detach(l *link) {
	if i := slices.Index(c.active, l); i >= 0 {
		c.active = slices.Delete(c.active, i, i+1)
		c.retiring = append(c.retiring, l)
	}
}

// byReplica returns the active connections by their replica's id.
func (c *linkSet) byReplica() map[string][]*link {
	links := make(map[string][]*link)
	for _, l := range c.active {
		links[l.replicaID] = append(links[l.replicaID], l)
	}
	return links
}

// responding reports, by replica, whether it responds on one of the active connections.
func (c *linkSet) responding() map[string]bool {
	responds := make(map[string]bool)
	for _, l := range c.active {
		_, unresponsive := l.mux.Unresponsive()
		responds[l.replicaID] = responds[l.replicaID] || !unresponsive
	}
	return responds
}

// forRequest returns the connection for requests: the first one whose peer responds, or the first
// one. Unless b is nil, only servers with the features that b needs count: replicas may differ
// while they are updated one after the other. The error is an *Error when none has them. There must
// be a connection.
func (c *linkSet) forRequest(b *Bind) (first *link, err error) {
	for _, l := range c.active {
		if missing := l.server.missingFeature(b); missing != nil {
			err = missing
			continue
		}
		if _, unresponsive := l.mux.Unresponsive(); !unresponsive && l.ctx.Err() == nil {
			return l, nil
		}
		if first == nil {
			first = l
		}
	}
	if first == nil {
		return nil, err
	}
	return first, nil
}

// leastLoaded returns the connection for a new stream. There must be one.
func (c *linkSet) leastLoaded(now time.Time) *link {
	best := c.active[0]
	least := best.load(now)
	for _, l := range c.active[1:] {
		if carries := l.load(now); carries.less(least) {
			best, least = l, carries
		}
	}
	return best
}

// linkLoad is the load of a connection, by which one is chosen for a new stream.
type linkLoad struct {
	unresponsive    bool
	busy            bool
	queued, streams int64 // bytes; twice the number of streams
}

// load ranks a busy connection without streams, whose last one has just ended, between an idle one
// and one with a stream. One that refuses streams ranks as one that does not respond. The session's
// mutex must be held.
func (l *link) load(now time.Time) linkLoad {
	_, unresponsive := l.mux.Unresponsive()
	unresponsive = unresponsive || now.Before(l.avoidUntil)
	busy, streams := l.conn.busy.isBusy(now), l.streams.Load()
	if busy && streams == 0 {
		return linkLoad{unresponsive, false, l.mux.Queued(), 1}
	}
	return linkLoad{unresponsive, busy, l.mux.Queued(), 2 * streams}
}

func (a linkLoad) less(b linkLoad) bool {
	switch {
	case a.unresponsive != b.unresponsive:
		return b.unresponsive
	case a.busy != b.busy:
		return b.busy
	case a.queued != b.queued:
		return a.queued < b.queued
	default:
		return a.streams < b.streams
	}
}

// avoidTime is how long new streams avoid a replica that has refused one because it drains: its
// DRAIN is on the way.
const avoidTime = time.Second

// avoidReplica makes new streams of the client prefer other replicas than that of l for avoidTime.
func (l *link) avoidReplica() {
	if l.replicaID == "" {
		return
	}
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	for _, o := range l.session.links.byReplica()[l.replicaID] {
		o.avoidUntil = time.Now().Add(avoidTime)
	}
}
