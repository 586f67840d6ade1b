// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	maxHead      = 512 << 10 // bytes of a header; the edge accepts half of it
	maxChunkLine = 4 << 10
)

// What Exchange.Error says when the tap or the other side is the reason.
const (
	errLost       = "not recorded whole: the inspector could not keep up"
	errUnanswered = "the connection ended before the answer"
	errCut        = "the connection ended within the answer"
)

// http1 parses a connection of HTTP/1: any number of requests, and what it is upgraded to.
type http1 struct {
	conn              *conn
	request, response reader
	open              []*record // without a whole answer, oldest first
	sending           *record   // whose request is being read
	lossy             bool      // bytes were lost once
	resync            bool      // the next request is awaited

	upgraded *record    // the exchange that the whole connection belongs to now
	sockets  *webSocket // the reader of upgraded's frames
}

type readState int

const (
	readHead readState = iota
	readLength
	readChunkLine
	readChunk
	readChunkEnd
	readTrailer
	readUntilEnd
	readGaps // chunks of which bytes are missing
)

// reader is the state of one direction.
type reader struct {
	state   readState
	began   time.Duration // when partial began
	partial []byte        // the incomplete header, chunk line or trailer
	rest    int64         // bytes left of the body or chunk
	recent  []byte        // readGaps: the last bytes
	frames  splitter      // the body's frames; nil = it has none
}

func (p *http1) parse(f *feed, ch *chunk) {
	rd := &p.response
	if p.conn.isClient(f) {
		rd = &p.request
	}
	if p.upgraded != nil {
		p.parseUpgraded(f, ch)
		return
	}
	if p.resync {
		if rd != &p.request || !isRequest(ch.data) {
			return
		}
		p.resync = false
	} else if ch.gap > 0 && !p.skip(rd, ch) {
		p.lose(ch)
		if rd != &p.request || !isRequest(ch.data) {
			return
		}
		p.resync = false
	}
	if rd == &p.response && rd.state == readGaps && len(p.open) > 1 && isAnswer(ch.data) {
		p.messageEnded(rd, ch.at) // the end was missed
	}
	for data := ch.data; len(data) > 0 && !p.resync; {
		if p.upgraded != nil {
			p.upgradedBytes(p.conn.isClient(f), ch, data)
			break
		}
		data = data[p.step(rd, ch, data):]
	}
	f.skipUntil.Store(p.skippable(rd, f))
}

// feed returns what rd reads.
func (p *http1) feed(rd *reader) *feed {
	if rd == &p.request {
		return &p.conn.client
	}
	return &p.conn.server
}

// record returns the exchange whose bytes rd reads; nil if there is none.
func (p *http1) record(rd *reader) (*record, *message) {
	switch {
	case rd == &p.request && p.sending != nil:
		return p.sending, &p.sending.request
	case rd == &p.response && len(p.open) > 0:
		return p.open[0], &p.open[0].response
	}
	return nil, nil
}

// step reads from data and returns how many bytes it has read, at least one.
func (p *http1) step(rd *reader, ch *chunk, data []byte) int {
	x, m := p.record(rd)
	if rd == &p.response {
		if x == nil {
			return len(data) // an answer that no request asked for
		}
		x.first = cmp.Or(x.first, ch.at)
	}
	switch rd.state {
	case readHead:
		return p.readHead(rd, ch, data)
	case readLength, readChunk:
		n := int(min(int64(len(data)), rd.rest))
		p.addBody(rd, x, m, ch, data[:n])
		if rd.rest -= int64(n); rd.rest == 0 {
			p.partEnded(rd, ch)
		}
		return n
	case readUntilEnd:
		p.addBody(rd, x, m, ch, data)
		return len(data)
	case readGaps:
		p.readGaps(rd, x, m, ch, data)
		return len(data)
	case readTrailer:
		return p.readTrailer(rd, ch, data)
	default:
		return p.readChunkLine(rd, ch, data)
	}
}

func (p *http1) addBody(rd *reader, x *record, m *message, ch *chunk, b []byte) {
	x.addBody(&m.body, ch, b)
	if rd.frames != nil {
		rd.frames.split(x, ch.at, b)
	}
	x.changed(ch.at)
}

// partEnded is called behind a body with a length, or a chunk.
func (p *http1) partEnded(rd *reader, ch *chunk) {
	if rd.state == readChunk {
		rd.state = readChunkEnd
		return
	}
	p.messageEnded(rd, ch.at)
}

// readChunkLine reads the line before a chunk, or the end of the line behind it.
func (p *http1) readChunkLine(rd *reader, ch *chunk, data []byte) int {
	n := bytes.IndexByte(data, '\n') + 1
	if n == 0 {
		n = len(data)
	}
	rd.partial = append(rd.partial, data[:n]...)
	if len(rd.partial) > maxChunkLine {
		p.invalid(rd, ch)
		return len(data)
	}
	if rd.partial[len(rd.partial)-1] != '\n' {
		return n
	}
	line := bytes.TrimSpace(rd.partial)
	rd.partial = rd.partial[:0]
	if rd.state == readChunkEnd {
		rd.state = readChunkLine
		return n
	}
	digits, _, _ := bytes.Cut(line, []byte(";"))
	size, err := strconv.ParseInt(string(bytes.TrimSpace(digits)), 16, 64)
	switch {
	case err != nil || size < 0:
		p.invalid(rd, ch)
		return len(data)
	case size == 0:
		rd.state, rd.partial = readTrailer, nil
	default:
		rd.state, rd.rest = readChunk, size
	}
	return n
}

func (p *http1) readTrailer(rd *reader, ch *chunk, data []byte) int {
	x, m := p.record(rd)
	block, n := rd.block(ch, data)
	switch {
	case len(rd.partial) > maxHead:
		p.invalid(rd, ch)
		return len(data)
	case block == nil:
		return n
	case len(block) > 2: // more than an empty line
		m.trailer = block
		x.grow(int64(len(block)))
	}
	p.messageEnded(rd, ch.at)
	return n
}

// readGaps looks for the end of a body in chunks of which bytes are missing.
func (p *http1) readGaps(rd *reader, x *record, m *message, ch *chunk, data []byte) {
	x.skipBody(&m.body, int64(len(data)))
	x.changed(ch.at)
	rd.recent = append(rd.recent, data[max(len(data)-maxChunkLine, 0):]...)
	rd.recent = rd.recent[max(len(rd.recent)-maxChunkLine, 0):]
	if !bytes.HasSuffix(rd.recent, []byte("\r\n\r\n")) {
		return
	}
	if bytes.Contains(rd.recent, []byte("\r\n0\r\n")) || bytes.HasPrefix(rd.recent, []byte("0\r\n")) {
		p.messageEnded(rd, ch.at)
	}
}

// block reads until an empty line. It returns what was read with that line, nil if it has not come
// yet, and how many bytes it took from data.
func (rd *reader) block(ch *chunk, data []byte) ([]byte, int) {
	if len(rd.partial) == 0 {
		rd.began = ch.at
		if end := blockEnd(data, 0); end >= 0 {
			return ch.keep(data[:end]), end
		}
		rd.partial = bytes.Clone(data)
		return nil, len(data)
	}
	before := len(rd.partial)
	rd.partial = append(rd.partial, data...)
	end := blockEnd(rd.partial, before)
	if end < 0 {
		return nil, len(data)
	}
	block := bytes.Clone(rd.partial[:end])
	rd.partial = nil
	return block, end - before
}

// skip handles bytes that are missing before ch. It returns false if what follows is then unknown.
func (p *http1) skip(rd *reader, ch *chunk) bool {
	x, m := p.record(rd)
	if x == nil {
		return rd == &p.response // nothing that anyone asked for
	}
	switch {
	case rd == &p.response && rd.state == readHead && len(rd.partial) == 0 && isAnswer(ch.data):
		return true // what is missing was before this answer
	case rd.state == readHead, rd.state == readTrailer, rd.state == readLength && ch.gap > rd.rest:
		return false
	case rd.state == readUntilEnd:
	case rd.state == readLength:
		if rd.rest -= ch.gap; rd.rest == 0 {
			defer p.partEnded(rd, ch)
		}
	default:
		rd.state, rd.partial, rd.recent = readGaps, nil, nil
	}
	x.skipBody(&m.body, ch.gap)
	x.lost += ch.lost
	x.changed(ch.at)
	return true
}

// skippable returns the position of the feed up to which bytes need not be recorded.
func (p *http1) skippable(rd *reader, f *feed) int64 {
	x, m := p.record(rd)
	if x == nil || rd.frames != nil || !m.body.full() && !x.evicted || rd == &p.response && len(p.open) > 1 {
		return 0
	}
	switch rd.state {
	case readLength:
		return f.consumed + rd.rest
	case readChunkLine, readChunk, readChunkEnd, readUntilEnd, readGaps:
		return math.MaxInt64
	}
	return 0
}

// lose gives up what is being read: bytes are missing. The next request begins anew.
func (p *http1) lose(ch *chunk) {
	for _, x := range p.unfinished() {
		x.lost += ch.lost
		x.request.body.short = x.request.body.short || !x.request.ended
		x.response.body.short = true
		x.finish(ch.at, errLost)
	}
	p.open, p.sending = nil, nil
	p.request, p.response = reader{}, reader{}
	p.conn.client.skipUntil.Store(0)
	p.conn.server.skipUntil.Store(0)
	p.lossy, p.resync = true, true
}

// unfinished returns the exchanges that are not done.
func (p *http1) unfinished() []*record {
	all := slices.Clone(p.open)
	if p.sending != nil && !slices.Contains(all, p.sending) {
		all = append(all, p.sending)
	}
	return all
}
