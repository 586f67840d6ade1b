// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"errors"
	"time"
)

// skip handles bytes that are missing before ch: within a DATA frame that hurts its body only.
func (p *http2Conn) skip(rd *h2Reader, ch *chunk) bool {
	if !rd.inFrame || rd.frame.kind != h2Data || ch.gap > rd.rest {
		return false
	}
	rd.rest -= ch.gap
	rd.padding = max(rd.padding, 0) // if its length is missing, padding counts as body
	if s := p.streams[rd.frame.stream]; s != nil {
		m := &s.record.response
		if rd.fromClient {
			m = &s.record.request
		}
		s.record.skipBody(&m.body, ch.gap)
		s.record.lost += ch.lost
	}
	if rd.rest == 0 {
		p.frameEnds(rd, ch)
	}
	return true
}

// die ends the recording of the connection.
func (p *http2Conn) die(ch *chunk, why string) {
	p.dead = true
	for _, s := range p.streams {
		s.record.lost += ch.lost
		s.record.request.body.short = s.record.request.body.short || !s.record.request.ended
		s.record.response.body.short = s.record.answered
		s.record.finish(ch.at, why)
	}
	clear(p.streams)
}

// notHTTP2 shows the first bytes of a side that does not speak HTTP/2.
func (p *http2Conn) notHTTP2(rd *h2Reader, ch *chunk, begin []byte) {
	var x *record
	for _, s := range p.streams {
		if x == nil || s.record.sequence < x.sequence {
			x = s.record
		}
	}
	if x == nil {
		x = p.conn.newRecord(ch.at)
	}
	x.raw = true
	b, all := &x.request.body, ch.data
	if !rd.fromClient {
		b, x.answered = &x.response.body, true
	}
	if !bytes.Contains(all, begin) { // it began in an earlier chunk
		all = begin
	}
	x.addBody(b, &chunk{size: len(all)}, bytes.Clone(all))
	x.finish(ch.at, errNotHTTP2)
	p.die(ch, errNotHTTP2)
}

// end finishes what is not done.
func (p *http2Conn) end(at time.Duration, cause error) {
	for _, s := range p.streams {
		x := s.record
		reason := errUnanswered
		if x.answered {
			reason = errCut
		}
		if x.response.ended {
			reason = ""
		}
		switch unreached := (*unreachedError)(nil); {
		case errors.As(cause, &unreached):
			reason = cause.Error()
		case cause != nil:
			reason += ": " + cause.Error()
		}
		x.request.body.short = x.request.body.short || !x.request.ended
		x.response.body.short = x.response.body.short || x.answered && !x.response.ended
		x.finish(at, reason)
	}
	clear(p.streams)
}
