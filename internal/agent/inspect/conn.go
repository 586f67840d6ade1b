// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"sync/atomic"
	"time"
)

// conn is a tapped connection. Its feeds are filled by the connection's goroutines and parsed by
// the Recorder's.
type conn struct {
	recorder       *Recorder
	info           *Info
	client, server feed // what the client and the server sent

	skipping atomic.Bool // the exchange that began last is not recorded
	answered atomic.Bool // by the upstream, since an exchange began

	ready     atomic.Bool // on Recorder.ready
	nextReady *conn       // on Recorder.ready

	// Guarded by Recorder.mu.
	parser   parser
	counts   *endpointCounts // the endpoint's counts
	replayOf string          // id of the exchange that is replayed on this connection
	hasFirst bool            // it has had an exchange
	firstID  string          // the first exchange's id, if finished is not nil
	since    time.Duration   // when a connection that was not made began
	finished chan struct{}   // closed when the end was parsed; nil = not wanted
}

// parser cuts what a connection carries into exchanges. Recorder.mu is held in all its calls.
type parser interface {
	// parse takes the next chunk of a feed, in the order in which the chunks were recorded.
	parse(f *feed, ch *chunk)
	// end is called last.
	end(at time.Duration, cause error)
}

func (r *Recorder) newConn(info Info) *conn {
	c := &conn{recorder: r, info: &info}
	c.client.init()
	c.server.init()
	if info.HTTP2 {
		c.parser = newHTTP2(c)
		c.client.frames, c.server.frames = &frameTracker{preface: len(h2Preface)}, &frameTracker{}
	} else {
		c.parser = &http1{conn: c}
	}
	return c
}

func (f *feed) init() {
	f.head = &chunk{}
	f.tail = f.head
}

// isClient reports whether f is what the client sent.
func (c *conn) isClient(f *feed) bool { return f == &c.client }

// drain parses the chunks that are queued, in the order in which they were recorded. The server's
// are looked at first: what they answer is then queued, too. What the client sent since is left for
// the next call: it may follow an answer that was not queued yet.
func (c *conn) drain() {
	if c.counts == nil { // not before: a stream that begins does not wait for readers of the Recorder
		c.counts = c.recorder.countsOf(c.info.EndpointID)
		c.counts.conns++
		c.counts.open++
	}
	limit := c.recorder.now()
	lastOfServer := c.server.last()
	lastOfClient := c.client.last()
	for {
		var ofClient, ofServer *chunk
		if c.client.head != lastOfClient {
			ofClient = c.client.head.next.Load()
		}
		if c.server.head != lastOfServer {
			ofServer = c.server.head.next.Load()
		}
		switch {
		case ofServer != nil && (ofClient == nil || ofServer.at < ofClient.at || ofClient.isEnd):
			c.parse(&c.server, ofServer)
		case ofClient == nil:
			return
		case ofClient.at > limit:
			c.wake()
			return
		default:
			c.parse(&c.client, ofClient)
		}
	}
}

// last returns the last chunk that is queued.
func (f *feed) last() *chunk {
	ch := f.head
	for {
		following := ch.next.Load()
		if following == nil {
			return ch
		}
		ch = following
	}
}

func (c *conn) parse(f *feed, ch *chunk) {
	f.head = ch
	f.consumed += ch.gap + int64(len(ch.data))
	if ch.gap > 0 || len(ch.data) > 0 {
		c.parser.parse(f, ch)
	}
	if ch.isEnd {
		c.parser.end(ch.at, ch.cause)
		c.addUnreached(ch)
		c.counts.open--
		if c.finished != nil {
			close(c.finished)
		}
	}
	ch.release(c.recorder)
}

// addUnreached adds an exchange for a connection that ended before it began, if none of its bytes
// came.
func (c *conn) addUnreached(ch *chunk) {
	if unreached := (*unreachedError)(nil); !c.hasFirst && errors.As(ch.cause, &unreached) {
		c.newRecord(c.since).finish(ch.at, unreached.Error())
	}
}

// newRecord appends an exchange that began at at.
func (c *conn) newRecord(at time.Duration) *record {
	x := &record{info: c.info, start: at, replayOf: c.replayOf}
	c.recorder.add(x)
	c.counts.requests++
	if c.finished != nil && !c.hasFirst {
		c.firstID = x.id()
	}
	c.hasFirst = true
	return x
}
