// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
)

const (
	maxH2Streams = 1000      // streams of a connection at a time; more are not recorded
	maxH2Frame   = 512 << 10 // bytes of a frame other than DATA, and of a header block
	maxH2Table   = 64 << 10  // bytes of a dynamic header table
)

// http2Conn parses a connection of HTTP/2. Once bytes are missing, or are not HTTP/2, header tables
// are not known any more, and nothing more of the connection is recorded.
type http2Conn struct {
	conn           *conn
	client, server h2Reader
	streams        map[uint32]*h2Stream
	dead           bool
}

// h2Stream is an exchange that is not done.
type h2Stream struct {
	record           *record
	request, answers splitter // the bodies' frames; nil = they have none
}

// h2Reader is the state of one direction.
type h2Reader struct {
	fromClient bool
	prefaced   bool   // the client's preface has passed
	buffer     []byte // the incomplete preface, frame header, or frame other than DATA
	inFrame    bool
	frame      h2Frame
	rest       int64 // bytes left of the frame's payload
	padding    int64 // padding at the end of a DATA frame; -1 = its length is the next byte
	decoder    *hpack.Decoder
	block      []byte  // header block before its last frame
	blockOf    h2Frame // the frame that began it
	frames     int     // so far
}

func newHTTP2(c *conn) *http2Conn {
	p := &http2Conn{conn: c, streams: make(map[uint32]*h2Stream)}
	for _, rd := range []*h2Reader{&p.client, &p.server} {
		rd.decoder = hpack.NewDecoder(4096, nil)
		rd.decoder.SetAllowedMaxDynamicTableSize(maxH2Table)
		rd.decoder.SetMaxStringLength(maxH2Frame)
	}
	p.client.fromClient, p.server.prefaced = true, true
	return p
}

func (p *http2Conn) parse(f *feed, ch *chunk) {
	rd := &p.server
	if p.conn.isClient(f) {
		rd = &p.client
	}
	if !p.dead && ch.gap > 0 && !p.skip(rd, ch) {
		p.die(ch, errLost)
	}
	for data := ch.data; len(data) > 0 && !p.dead; {
		data = p.step(rd, ch, data)
	}
	if p.dead {
		f.skipUntil.Store(math.MaxInt64)
	}
}

// step reads from data and returns the rest.
func (p *http2Conn) step(rd *h2Reader, ch *chunk, data []byte) []byte {
	if !rd.inFrame {
		need := h2HeaderSize
		if !rd.prefaced {
			need = len(h2Preface)
		}
		n := min(need-len(rd.buffer), len(data))
		rd.buffer = append(rd.buffer, data[:n]...)
		if len(rd.buffer) == need {
			p.frameBegins(rd, ch)
		}
		return data[n:]
	}
	n := int(min(int64(len(data)), rd.rest))
	part := data[:n]
	rd.rest -= int64(n)
	if rd.frame.kind == h2Data {
		p.data(rd, ch, part)
	} else {
		rd.buffer = append(rd.buffer, part...)
	}
	if rd.rest == 0 {
		p.frameEnds(rd, ch)
	}
	return data[n:]
}

// frameBegins reads the preface or a frame's header.
func (p *http2Conn) frameBegins(rd *h2Reader, ch *chunk) {
	b := rd.buffer
	rd.buffer = rd.buffer[:0]
	if !rd.prefaced {
		rd.prefaced = true
		if string(b) != h2Preface {
			p.notHTTP2(rd, ch, b)
		}
		return
	}
	rd.frame = parseH2Frame(b)
	if rd.frames++; rd.frames == 1 && rd.frame.kind != h2Settings {
		p.notHTTP2(rd, ch, b)
		return
	}
	if rd.frame.kind != h2Data && rd.frame.length > maxH2Frame {
		p.die(ch, errNotHTTP2)
		return
	}
	rd.inFrame, rd.rest, rd.padding = true, rd.frame.length, 0
	if rd.frame.kind == h2Data && rd.frame.has(h2Padded) {
		rd.padding = -1
	}
	if rd.rest == 0 {
		p.frameEnds(rd, ch)
	}
}

const errNotHTTP2 = "the connection does not carry HTTP/2 that can be read"

// data takes a part of a DATA frame.
func (p *http2Conn) data(rd *h2Reader, ch *chunk, part []byte) {
	if rd.padding < 0 {
		rd.padding = int64(part[0])
		part = part[1:]
	}
	if after := rd.rest - rd.padding; after < 0 { // the end of part is padding
		part = part[:max(int64(len(part))+after, 0)]
	}
	s := p.streams[rd.frame.stream]
	if s == nil || len(part) == 0 {
		return
	}
	m, frames := &s.record.request, s.request
	if !rd.fromClient {
		m, frames = &s.record.response, s.answers
	}
	s.record.addBody(&m.body, ch, part)
	s.record.changed(ch.at)
	if frames != nil {
		frames.split(s.record, ch.at, part)
	}
}

// frameEnds handles a whole frame.
func (p *http2Conn) frameEnds(rd *h2Reader, ch *chunk) {
	rd.inFrame = false
	payload, f := rd.buffer, rd.frame
	rd.buffer = rd.buffer[:0]
	switch f.kind {
	case h2Data:
		if f.has(h2EndStream) {
			p.endOfSide(rd, ch.at, f.stream)
		}
	case h2Headers:
		if f.has(h2Padded) {
			payload = unpad(payload)
		}
		if f.has(h2Priority) {
			payload = payload[min(5, len(payload)):]
		}
		rd.blockOf = f
		p.headerBlock(rd, ch, payload, f.has(h2EndHeaders))
	case h2PushPromise:
		if f.has(h2Padded) {
			payload = unpad(payload)
		}
		rd.blockOf = f
		p.headerBlock(rd, ch, payload[min(4, len(payload)):], f.has(h2EndHeaders))
	case h2Continuation:
		p.headerBlock(rd, ch, payload, f.has(h2EndHeaders))
	case h2ResetStream:
		if s := p.streams[f.stream]; s != nil && len(payload) == 4 {
			p.reset(s, rd, ch.at, binary.BigEndian.Uint32(payload))
			delete(p.streams, f.stream)
		}
	}
}

// unpad removes the padding of a frame.
func unpad(payload []byte) []byte {
	if len(payload) == 0 || int(payload[0]) >= len(payload) {
		return nil
	}
	return payload[1 : len(payload)-int(payload[0])]
}

func (p *http2Conn) reset(s *h2Stream, rd *h2Reader, at time.Duration, code uint32) {
	by := "the upstream"
	if rd.fromClient {
		by = "the caller"
	}
	why := by + " reset the stream: " + h2ErrorName(code)
	if code == 0 && s.record.response.ended { // an answer to a part of the request
		why = ""
	}
	s.record.finish(at, why)
}

// headerBlock takes a part of a header block, whose last part is a whole one.
func (p *http2Conn) headerBlock(rd *h2Reader, ch *chunk, part []byte, last bool) {
	if len(rd.block)+len(part) > maxH2Frame {
		p.die(ch, errNotHTTP2)
		return
	}
	rd.block = append(rd.block, part...)
	if !last {
		return
	}
	decoded, err := rd.decoder.DecodeFull(rd.block)
	rd.block = nil
	if err != nil {
		p.die(ch, errNotHTTP2)
		return
	}
	f := rd.blockOf
	if f.kind == h2PushPromise {
		return // the edge does not take pushes
	}
	fields, size := make([]field, len(decoded)), int64(0)
	for i, d := range decoded {
		fields[i] = field{d.Name, d.Value}
		size += int64(len(d.Name) + len(d.Value) + 32)
	}
	if rd.fromClient {
		p.requestFields(ch, f.stream, fields, size)
	} else {
		p.answerFields(ch, f.stream, fields, size)
	}
	if f.has(h2EndStream) {
		p.endOfSide(rd, ch.at, f.stream)
	}
}

func (p *http2Conn) requestFields(ch *chunk, id uint32, fields []field, size int64) {
	s := p.streams[id]
	if s == nil {
		if len(p.streams) >= maxH2Streams {
			return
		}
		s = &h2Stream{record: p.conn.newRecord(ch.at), request: splitterFor(infoOf(fields), true)}
		p.streams[id] = s
		s.record.request.fields = fields
	} else {
		s.record.request.tail = fields
	}
	s.record.grow(size)
	s.record.changed(ch.at)
}

func (p *http2Conn) answerFields(ch *chunk, id uint32, fields []field, size int64) {
	s := p.streams[id]
	if s == nil {
		return
	}
	s.record.first = cmp.Or(s.record.first, ch.at)
	s.record.changed(ch.at)
	switch {
	case s.record.answered:
		s.record.response.tail = fields
	case len(fields) > 0 && fields[0].name == ":status" && strings.HasPrefix(fields[0].value, "1"):
		return // another header follows
	default:
		s.record.response.fields, s.record.answered = fields, true
		s.answers = splitterFor(infoOf(fields), false)
	}
	s.record.grow(size)
}

// infoOf returns what splitterFor needs.
func infoOf(fields []field) headInfo {
	var info headInfo
	for _, f := range fields {
		info.setField([]byte(f.name), []byte(f.value))
	}
	return info
}

// endOfSide handles the end of a request or an answer.
func (p *http2Conn) endOfSide(rd *h2Reader, at time.Duration, id uint32) {
	s := p.streams[id]
	if s == nil {
		return
	}
	s.record.changed(at)
	if rd.fromClient {
		s.record.request.ended = true
	} else {
		s.record.response.ended = true
	}
	if s.record.request.ended && s.record.response.ended {
		s.record.finish(at, "")
		delete(p.streams, id)
	}
}
