// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"time"
)

const (
	maxQueued = 8 << 20 // bytes that wait for the Recorder's goroutine; what is beyond is dropped
	// chunkOverhead is what a queued chunk costs beside its bytes.
	chunkOverhead = 128
	minUnskipped  = 32 // bytes: shorter chunks are never skipped

	// Of more exchanges of HTTP/1 a second, or more bytes, whole exchanges are dropped: what no
	// reader can follow costs the agent little.
	maxRate     = 600
	maxBurst    = 500
	maxByteRate = 64 << 20
)

// Stream is what Tap wraps: a stream of the tunnel, whose peer is the service.
type Stream interface {
	net.Conn
	CloseWrite() error
	Abort() error
	// Next returns what the peer sent, valid until the next call.
	Next() ([]byte, error)
}

// Info describes a connection.
type Info struct {
	EndpointID  string
	EndpointURL string // the endpoint's URL; a labelled tunnel's labels
	Caller      Caller // what is known without the requests
	HTTP2       bool   // both sides speak HTTP/2 from the first byte
	// Dial connects to the upstream again, for Replay.
	Dial func(context.Context) (net.Conn, error)
}

// Tap is a stream that records what passes. It has the methods of the Stream.
type Tap struct {
	Stream
	conn *conn
}

// Tap returns st with a tap. The caller uses it in place of st, and calls End once nothing else
// uses it any more.
func (r *Recorder) Tap(st Stream, info Info) *Tap {
	return &Tap{Stream: st, conn: r.newConn(info)}
}

// Next returns what the service sent.
func (t *Tap) Next() ([]byte, error) {
	p, err := t.Stream.Next()
	if len(p) > 0 { // before the upstream has them, so that its answer is queued later
		t.conn.recordRequest(p)
	}
	return p, err
}

// Write sends what the upstream answered.
func (t *Tap) Write(p []byte) (int, error) {
	at, skipping := t.conn.recorder.now(), t.conn.skipping.Load() // before the caller can answer
	t.conn.answered.Store(true)
	n, err := t.Stream.Write(p)
	if n > 0 { // they are on their way: the copy delays nothing
		t.conn.recordUnless(skipping, &t.conn.server, p[:n], at)
	}
	return n, err
}

// recordRequest records what a caller sent.
func (c *conn) recordRequest(p []byte) {
	at := c.recorder.now()
	if c.beginsExchange(p) {
		c.skipping.Store(!c.recorder.admit(at))
	}
	c.recordUnless(c.skipping.Load(), &c.client, p, at)
}

// beginsExchange reports whether p, from the service, is the begin of a request of HTTP/1 that
// follows an answer.
func (c *conn) beginsExchange(p []byte) bool {
	if c.client.frames != nil || c.client.position > 0 && !c.answered.Load() || !isRequest(p) {
		return false
	}
	c.answered.Store(false)
	return true
}

// recordUnless records p, or drops it.
func (c *conn) recordUnless(skipping bool, f *feed, p []byte, at time.Duration) {
	if !skipping {
		c.record(f, p, at)
		return
	}
	f.position += int64(len(p))
	f.drop(c.recorder, int64(len(p)))
}

// admit reports whether one more exchange is recorded: maxRate a second, and maxBurst at once, less
// if what is recorded is more than maxByteRate.
func (r *Recorder) admit(at time.Duration) bool {
	const interval = time.Second / maxRate
	const ahead = (maxBurst - 1) * interval
	for {
		next := r.nextAdmitted.Load()
		due := max(next, int64(at))
		if due-int64(at) > int64(ahead) {
			// A single long answer does not keep what follows out for longer than this.
			r.nextAdmitted.CompareAndSwap(next, min(next, int64(at+2*ahead)))
			return false
		}
		if r.nextAdmitted.CompareAndSwap(next, due+int64(interval)) {
			return true
		}
	}
}

// End records the end of the connection; cause is why it broke, nil if it did not.
func (t *Tap) End(cause error) { t.conn.end(cause) }

// AddUnreached records a request for which there was no connection to the upstream: what the
// service has sent of it since start, and the cause.
func (r *Recorder) AddUnreached(info Info, start time.Time, sent []byte, cause string) {
	c := r.newConn(info)
	c.since = start.Sub(r.epoch)
	if len(sent) > 0 {
		c.record(&c.client, sent, c.since)
	}
	c.end(&unreachedError{cause})
}

// unreachedError is why a connection ended before it began.
type unreachedError struct{ cause string }

func (e *unreachedError) Error() string { return "the upstream was not reached: " + e.cause }

// feed is one direction of a connection: a list to which one producer appends and from which the
// Recorder's goroutine takes.
type feed struct {
	// the producer's alone
	tail     *chunk
	position int64         // bytes so far
	gap      int64         // bytes since the last chunk that are in none
	lost     int64         // those of gap that did not fit into the queue
	frames   *frameTracker // HTTP/2's frames; nil for other protocols
	chunks   []chunk       // for the next chunks
	block    []byte        // for their data, if it is short

	// skipUntil is the position up to which the consumer does not need the bytes. It is a hint:
	// both sides count positions.
	skipUntil atomic.Int64

	// the consumer's alone
	head     *chunk
	consumed int64 // position up to which the chunks were parsed
}

// chunk is a piece of a feed.
type chunk struct {
	next   atomic.Pointer[chunk]
	at     time.Duration // since Recorder.epoch
	gap    int64         // bytes before data that are missing
	lost   int64         // those of gap that were wanted
	data   []byte
	size   int     // bytes of the memory that data is in
	buffer *buffer // buffer of that memory, if it is recycled
	cost   int64   // in Recorder.queued
	isEnd  bool    // the connection's end, in the client's feed
	cause  error   // the end's cause
}

// record queues a copy of p, unless it can be skipped or the queue is full. Of HTTP/2 it then drops
// the payload of DATA frames only: without a header frame, no later one could be read.
func (c *conn) record(f *feed, p []byte, at time.Duration) {
	if f.frames == nil {
		c.queue(f, p, at, maxQueued)
		return
	}
	if c.recorder.queued.Load() <= maxQueued {
		f.frames.advance(p)
		c.queue(f, p, at, 2*maxQueued)
		return
	}
	for len(p) > 0 {
		n, isData := f.frames.next(p)
		if isData {
			f.position += int64(n)
			f.drop(c.recorder, int64(n))
		} else {
			c.queue(f, p[:n], at, 2*maxQueued)
		}
		p = p[n:]
	}
}

// queue queues a copy of p, unless it can be skipped or more than limit is queued.
func (c *conn) queue(f *feed, p []byte, at time.Duration, limit int64) {
	n := int64(len(p))
	f.position += n
	if f.position < f.skipUntil.Load() {
		if !mayEndMessage(p) {
			f.gap += n
			return
		}
		f.skipUntil.Store(0) // what follows may be needed
	}
	r := c.recorder
	cost := n + n/buffersPerDoubling + chunkOverhead // the memory is at most that
	queued := r.queued.Add(cost)
	if queued > limit || r.closed.Load() {
		r.queued.Add(-cost)
		f.drop(r, n)
		return
	}
	ch := f.newChunk()
	ch.at, ch.cost = at, cost
	ch.copyFrom(p, f, &r.buffers)
	r.nextAdmitted.Add(n * int64(time.Second) / maxByteRate)
	c.push(f, ch)
	if queued > hurryAbove {
		r.hurry()
	}
}

// drop counts bytes that are not recorded.
func (f *feed) drop(r *Recorder, n int64) {
	r.dropped.Add(n)
	f.gap, f.lost = f.gap+n, f.lost+n
}

// mayEndMessage reports whether a skipped piece of a body may hold its end: what frames a body in
// chunks ends with an empty line.
func mayEndMessage(p []byte) bool {
	return len(p) < minUnskipped || bytes.HasSuffix(p, []byte("\r\n\r\n"))
}

func (c *conn) push(f *feed, ch *chunk) {
	ch.gap, ch.lost = f.gap, f.lost
	f.gap, f.lost = 0, 0
	f.tail.next.Store(ch)
	f.tail = ch
	c.wake()
}

// end queues the end of the connection. Its goroutine is the only producer by now.
func (c *conn) end(cause error) {
	if c.recorder.closed.Load() {
		return
	}
	at := c.recorder.now()
	if c.server.gap > 0 {
		c.recorder.queued.Add(chunkOverhead)
		c.push(&c.server, &chunk{at: at, cost: chunkOverhead})
	}
	c.recorder.queued.Add(chunkOverhead)
	c.push(&c.client, &chunk{at: at, cost: chunkOverhead, isEnd: true, cause: cause})
}

// wake puts the connection on the list of those with chunks, and wakes the Recorder's goroutine.
func (c *conn) wake() {
	if c.ready.Load() || !c.ready.CompareAndSwap(false, true) {
		return
	}
	r := c.recorder
	for {
		first := r.ready.Load()
		c.nextReady = first
		if r.ready.CompareAndSwap(first, c) {
			break
		}
	}
	if r.asleep.Load() && r.asleep.CompareAndSwap(true, false) {
		r.wake()
	}
}

// release gives up the chunk's bytes. Recorder.mu must be held.
func (ch *chunk) release(r *Recorder) {
	r.queued.Add(-ch.cost)
	if ch.buffer != nil {
		ch.buffer.release()
	}
	ch.data, ch.buffer = nil, nil
}

// keepsInPlace reports whether an exchange keeps p, a part of the chunk, without a copy: the memory
// that it is in is at most twice as large.
func (ch *chunk) keepsInPlace(p []byte) bool { return len(p) >= ch.size/2 }

// keep returns p, a part of the chunk, for an exchange to keep, which does not know the buffer.
func (ch *chunk) keep(p []byte) []byte {
	if ch.buffer != nil || !ch.keepsInPlace(p) {
		return bytes.Clone(p)
	}
	return p[:len(p):len(p)]
}
