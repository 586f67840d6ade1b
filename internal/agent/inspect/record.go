// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	recordOverhead = 1 << 10 // bytes of a record beside headers, bodies and frames
	frameOverhead  = 128
	maxFrames      = 1000     // kept of one exchange
	maxFrameMemory = 1 << 20  // bytes of one exchange's frames
	maxFrameData   = 64 << 10 // kept of one frame
)

// record is an exchange as it is recorded. Recorder.mu guards it.
type record struct {
	recorder *Recorder
	sequence uint64
	info     *Info
	start    time.Duration // since Recorder.epoch, as are the following
	first    time.Duration // when the answer began; 0 = none
	last     time.Duration

	request, response message
	answered          bool // response has a header
	frames            []Frame
	frameMemory       int64
	framesDropped     int
	raw               bool
	lost              int64
	err               string
	replayOf          string
	done              bool

	memory  int64
	evicted bool      // nothing is kept any more
	summary *Exchange // what List returned last, of an exchange that has not changed since
}

// message is one side of a record.
type message struct {
	head    []byte  // HTTP/1: as sent, with the empty line
	trailer []byte  // HTTP/1: as sent
	fields  []field // HTTP/2: header fields, those with ":" first
	tail    []field // HTTP/2: trailer fields
	body    body
	ended   bool
}

// field is a header field of HTTP/2.
type field struct{ name, value string }

// body is a body, or its beginning.
type body struct {
	parts []part
	kept  int64
	size  int64
	short bool // not all of it is kept
}

// part is a piece of a body.
type part struct {
	data   []byte
	buffer *buffer // what data is a part of, if that is recycled when the record leaves the list
}

// id returns the Exchange.ID.
func (x *record) id() string { return fmt.Sprintf("%s%08x", x.recorder.idPrefix, x.sequence) }

// full reports whether nothing more of the body is kept.
func (b *body) full() bool { return b.kept >= maxBody }

// grow counts memory of the record.
func (x *record) grow(n int64) {
	if !x.evicted {
		x.memory += n
		x.recorder.memory += n
	}
}

// changed must be called when something of the record has changed.
func (x *record) changed(at time.Duration) {
	x.summary = nil
	x.last = max(x.last, at)
}

// evict releases what the record holds: it is in no list any more.
func (x *record) evict() {
	x.evicted = true
	x.frames, x.summary = nil, nil
	x.request.body.release()
	x.response.body.release()
}

// release gives up what is kept of the body.
func (b *body) release() {
	for _, p := range b.parts {
		if p.buffer != nil {
			p.buffer.release()
		}
	}
	b.parts = nil
}

// addBody appends a part of ch to a body.
func (x *record) addBody(b *body, ch *chunk, p []byte) {
	b.size += int64(len(p))
	if x.evicted {
		b.short = true
		return
	}
	if rest := maxBody - b.kept; int64(len(p)) > rest {
		b.short = true
		p = p[:rest]
	}
	if len(p) == 0 {
		return
	}
	b.kept += int64(len(p))
	if ch.buffer == nil || !ch.keepsInPlace(p) {
		b.parts = append(b.parts, part{data: ch.keep(p)})
		x.grow(int64(len(p)))
		return
	}
	ch.buffer.refs++
	b.parts = append(b.parts, part{p[:len(p):len(p)], ch.buffer})
	x.grow(int64(ch.size))
}

// skipBody counts bytes of a body that were not recorded.
func (x *record) skipBody(b *body, n int64) {
	if n > 0 {
		b.size += n
		b.short = true
	}
}

// addFrame appends a frame; the oldest ones make room for it. The record keeps data.
func (x *record) addFrame(f Frame) {
	if x.evicted {
		return
	}
	x.frames = append(x.frames, f)
	x.frameMemory += frameCost(f)
	x.grow(frameCost(f))
	n := 0
	for len(x.frames)-n > maxFrames || x.frameMemory > maxFrameMemory {
		cost := frameCost(x.frames[n])
		x.frameMemory -= cost
		x.grow(-cost)
		x.frames[n] = Frame{}
		n++
	}
	x.frames = x.frames[n:]
	x.framesDropped += n
}

func frameCost(f Frame) int64 { return int64(len(f.Data)) + frameOverhead }

// finish marks the exchange as done. err is why it broke off, "" if it did not.
func (x *record) finish(at time.Duration, err string) {
	if x.done {
		return
	}
	x.changed(at)
	x.done = true
	x.err = cmp.Or(x.err, err)
}

// exchange returns the record as readers get it, with or without bodies and data of frames.
func (x *record) exchange(withBodies bool) *Exchange {
	if !withBodies && x.summary != nil {
		return x.summary
	}
	end := x.last
	if !x.done {
		end = x.recorder.now()
	}
	e := &Exchange{
		ID: x.id(), Start: x.recorder.epoch.Add(x.start), EndpointID: x.info.EndpointID,
		EndpointURL: x.info.EndpointURL, Request: x.request.message(true, withBodies), Duration: end - x.start,
		FramesDropped: x.framesDropped, Raw: x.raw, Lost: x.lost, Error: x.err, ReplayOf: x.replayOf, Done: x.done,
	}
	if e.Caller = x.info.Caller; x.replayOf == "" {
		e.Caller.addFrom(e.Request.Header)
	}
	if x.answered {
		answer := x.response.message(false, withBodies)
		e.Response = &answer
	}
	if x.first > 0 {
		e.FirstByte = x.first - x.start
	}
	e.Frames = make([]Frame, len(x.frames))
	for i, f := range x.frames {
		if !withBodies {
			f.Data = nil
		}
		e.Frames[i] = f
	}
	if !withBodies && x.done {
		x.summary = e
	}
	return e
}

// addFrom adds to what is known of a connection what the edge says in a request's header. The edge
// removes what clients say there.
func (c *Caller) addFrom(h http.Header) {
	if ip := h.Get("X-Forwarded-For"); ip != "" {
		c.IP = ip
	}
	for _, name := range []string{"Fairlead-Auth-Email", "Fairlead-Auth-Name", "Fairlead-Auth-User-Id"} {
		if person, err := url.PathUnescape(h.Get(name)); err == nil && person != "" {
			c.Person = person
			return
		}
	}
}

// join returns the kept part of the body, which is not recycled from then on.
func (b *body) join() []byte {
	switch len(b.parts) {
	case 0:
		return nil
	case 1:
		b.parts[0].buffer = nil // the reference to it is never given up
	default:
		joined := make([]byte, 0, b.kept)
		for _, p := range b.parts {
			joined = append(joined, p.data...)
		}
		b.release()
		b.parts = []part{{data: joined}}
	}
	return b.parts[0].data
}

// message parses the header.
func (m *message) message(isRequest, withBody bool) Message {
	out := Message{BodySize: m.body.size, Truncated: m.body.short}
	if withBody {
		out.Body = m.body.join()
	}
	if m.fields != nil {
		out.setFields(m.fields, m.tail)
		return out
	}
	line, rest := cutLine(m.head)
	if isRequest {
		out.Method, out.URL, out.Proto = cutRequestLine(line)
	} else {
		out.Proto, out.Status = cutStatusLine(line)
	}
	out.Header = parseFields(rest)
	if len(m.trailer) > 0 {
		out.Trailer = parseFields(m.trailer)
	}
	return out
}

// setFields sets what HTTP/2 has as fields.
func (out *Message) setFields(fields, trailer []field) {
	out.Proto, out.Header = "HTTP/2.0", make(http.Header)
	for _, f := range fields {
		switch f.name {
		case ":method":
			out.Method = f.value
		case ":path":
			out.URL = f.value
		case ":authority":
			out.Header.Set("Host", f.value)
		case ":status":
			out.Status = atoi(f.value)
		case ":scheme":
		default:
			out.Header.Add(f.name, f.value)
		}
	}
	for _, f := range trailer {
		if out.Trailer == nil {
			out.Trailer = make(http.Header)
		}
		out.Trailer.Add(f.name, f.value)
	}
}
