// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"errors"
	"slices"
	"time"
)

// readHead reads the header of a request or an answer.
func (p *http1) readHead(rd *reader, ch *chunk, data []byte) int {
	if len(rd.partial) == 0 && (data[0] == '\r' || data[0] == '\n') {
		return 1 // an empty line before a message
	}
	head, n := rd.block(ch, data)
	switch {
	case head == nil && len(rd.partial) > maxHead, head == nil && hasLine(rd.partial) && !p.isHead(rd, rd.partial),
		head != nil && !p.isHead(rd, head):
		p.invalid(rd, ch)
		return len(data) // invalid has kept them
	case head == nil:
	case rd == &p.request:
		p.beginRequest(rd, ch, head)
	default:
		p.beginAnswer(rd, ch, head)
	}
	return n
}

func hasLine(b []byte) bool { return bytes.IndexByte(b, '\n') >= 0 }

func (p *http1) isHead(rd *reader, b []byte) bool {
	if rd == &p.request {
		return isRequest(b)
	}
	return isAnswer(b)
}

func (p *http1) beginRequest(rd *reader, ch *chunk, head []byte) {
	if p.response.state == readGaps { // its end may have been missed: the next answer shows
		p.conn.server.skipUntil.Store(0)
	}
	x := p.conn.newRecord(rd.began)
	x.request.head = head
	x.grow(int64(len(head)))
	x.changed(ch.at)
	p.open, p.sending = append(p.open, x), x
	info := scanHead(head)
	rd.frames = splitterFor(info, true)
	switch {
	case info.chunked:
		rd.state = readChunkLine
	case info.length > 0:
		rd.state, rd.rest = readLength, info.length
	default:
		p.messageEnded(rd, ch.at)
	}
}

func (p *http1) beginAnswer(rd *reader, ch *chunk, head []byte) {
	x := p.open[0]
	status := statusOf(head)
	if status < 200 && status != 101 { // another header follows
		return
	}
	x.response.head, x.answered = head, true
	x.grow(int64(len(head)))
	x.changed(ch.at)
	info := scanHead(head)
	isConnect := bytes.HasPrefix(x.request.head, []byte("CONNECT "))
	rd.frames = splitterFor(info, false)
	switch {
	case status == 101, isConnect && status < 300:
		p.upgrade(x, info)
	case bytes.HasPrefix(x.request.head, []byte("HEAD ")), status == 204, status == 304:
		p.messageEnded(rd, ch.at)
	case info.chunked:
		rd.state = readChunkLine
	case info.length == 0:
		p.messageEnded(rd, ch.at)
	case info.length > 0:
		rd.state, rd.rest = readLength, info.length
	default:
		rd.state = readUntilEnd
	}
}

// messageEnded is called behind a request or an answer.
func (p *http1) messageEnded(rd *reader, at time.Duration) {
	x, m := p.record(rd)
	*rd = reader{}
	p.feed(rd).skipUntil.Store(0)
	if x == nil {
		return
	}
	m.ended = true
	x.changed(at)
	if rd == &p.request {
		p.sending = nil
	} else {
		p.open = slices.Delete(p.open, 0, 1)
	}
	if x.request.ended && x.response.ended {
		x.finish(at, "")
	}
}

// upgrade makes the rest of the connection part of x.
func (p *http1) upgrade(x *record, info headInfo) {
	p.upgraded, p.open, p.sending = x, nil, nil
	if info.websocket {
		p.sockets = newWebSocket(x, info.deflate)
	} else {
		x.raw = true
	}
}

// invalid handles bytes that are not HTTP/1: what rd has read of them is shown as it is, and what
// follows. After a loss, they are part of what was lost.
func (p *http1) invalid(rd *reader, ch *chunk) {
	if p.lossy {
		p.lose(ch)
		return
	}
	var x *record
	if all := p.unfinished(); len(all) > 0 {
		x = all[0]
		for _, other := range all[1:] {
			other.finish(ch.at, errUnanswered)
		}
	} else {
		x = p.conn.newRecord(ch.at)
	}
	x.raw, p.upgraded, p.open, p.sending = true, x, nil, nil
	b, partial := &x.response.body, rd.partial
	if rd == &p.request {
		b = &x.request.body
	} else {
		x.answered = true
	}
	if len(partial) == 0 {
		partial = ch.data
	}
	x.addBody(b, &chunk{size: len(partial)}, bytes.Clone(partial))
	x.changed(ch.at)
}

// parseUpgraded handles a chunk of a connection that was upgraded, or is not HTTP.
func (p *http1) parseUpgraded(f *feed, ch *chunk) {
	x := p.upgraded
	fromClient := p.conn.isClient(f)
	if ch.gap > 0 {
		x.lost += ch.lost
		switch {
		case p.sockets != nil:
			p.sockets.skip(fromClient, ch.gap)
		case fromClient:
			x.skipBody(&x.request.body, ch.gap)
		default:
			x.skipBody(&x.response.body, ch.gap)
		}
	}
	p.upgradedBytes(fromClient, ch, ch.data)
	f.skipUntil.Store(p.skippableUpgraded(f, fromClient))
}

func (p *http1) upgradedBytes(fromClient bool, ch *chunk, data []byte) {
	x := p.upgraded
	x.changed(ch.at)
	if !fromClient && len(data) > 0 && !x.answered { // by something else than HTTP
		x.answered, x.first = true, ch.at
	}
	switch {
	case p.sockets != nil:
		p.sockets.parse(fromClient, ch.at, data)
	case fromClient:
		x.addBody(&x.request.body, ch, data)
	default:
		x.addBody(&x.response.body, ch, data)
	}
}

func (p *http1) skippableUpgraded(f *feed, fromClient bool) int64 {
	b := &p.upgraded.response.body
	switch {
	case p.sockets != nil:
		return f.consumed + p.sockets.skippable(fromClient)
	case fromClient:
		b = &p.upgraded.request.body
	}
	if b.full() || p.upgraded.evicted {
		return f.consumed + maxBuffer
	}
	return 0
}

// end finishes what is not done.
func (p *http1) end(at time.Duration, cause error) {
	why := ""
	if cause != nil {
		why = cause.Error()
	}
	if p.upgraded != nil {
		p.upgraded.finish(at, why)
		return
	}
	if p.response.state == readUntilEnd && cause == nil {
		p.messageEnded(&p.response, at)
	}
	for _, x := range p.unfinished() {
		reason := errUnanswered
		if x.answered {
			reason = errCut
		}
		switch unreached := (*unreachedError)(nil); {
		case x.response.ended, errors.As(cause, &unreached):
			reason = why // an answer to a part of the request, or no upstream
		case why != "":
			reason += ": " + why
		}
		x.request.body.short = x.request.body.short || !x.request.ended
		x.response.body.short = x.answered && !x.response.ended
		x.finish(at, reason)
	}
}
