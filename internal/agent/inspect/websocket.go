// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"io"
	"time"
)

// webSocket parses both directions of a WebSocket (RFC 6455).
type webSocket struct {
	record         *record
	client, server socketReader
}

// socketReader is the state of one direction.
type socketReader struct {
	fromClient bool
	inflate    *inflater // the inflater for permessage-deflate; nil = not agreed
	header     []byte    // the frame's, while it is not complete
	inFrame    bool
	opcode     byte
	messageOf  byte // opcode of the message's first frame
	compressed bool // the message is
	final      bool
	mask       [4]byte
	size, rest int64
	data       []byte
	broken     bool // bytes are missing: no frame can be told
}

func newWebSocket(x *record, deflate bool) *webSocket {
	w := &webSocket{record: x, client: socketReader{fromClient: true}}
	if deflate {
		w.client.inflate, w.server.inflate = &inflater{}, &inflater{}
	}
	return w
}

func (w *webSocket) reader(fromClient bool) *socketReader {
	if fromClient {
		return &w.client
	}
	return &w.server
}

func (w *webSocket) parse(fromClient bool, at time.Duration, b []byte) {
	s := w.reader(fromClient)
	for len(b) > 0 && !s.broken {
		if !s.inFrame {
			b = s.readHeader(b)
			if s.inFrame && s.rest == 0 {
				w.frameEnded(s, at)
			}
			continue
		}
		n := int(min(int64(len(b)), s.rest))
		s.take(b[:n])
		b = b[n:]
		if s.rest -= int64(n); s.rest == 0 {
			w.frameEnded(s, at)
		}
	}
}

// readHeader reads the frame's header and returns what follows it.
func (s *socketReader) readHeader(b []byte) []byte {
	for len(b) > 0 {
		s.header = append(s.header, b[0])
		b = b[1:]
		if need := headerSize(s.header); len(s.header) < need {
			continue
		}
		h := s.header
		s.final, s.opcode = h[0]&0x80 != 0, h[0]&0x0f
		s.size = int64(h[1] & 0x7f)
		switch s.size {
		case 126:
			s.size = int64(binary.BigEndian.Uint16(h[2:]))
		case 127:
			s.size = int64(binary.BigEndian.Uint64(h[2:]) &^ (1 << 63))
		}
		s.mask = [4]byte{}
		if h[1]&0x80 != 0 {
			copy(s.mask[:], h[len(h)-4:])
		}
		if s.opcode == 1 || s.opcode == 2 {
			s.messageOf, s.compressed = s.opcode, h[0]&0x40 != 0
		}
		s.rest, s.data, s.header, s.inFrame = s.size, nil, s.header[:0], true
		return b
	}
	return nil
}

// headerSize returns how long the header is that begins with h.
func headerSize(h []byte) int {
	if len(h) < 2 {
		return 2
	}
	n := 2
	switch h[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if h[1]&0x80 != 0 {
		n += 4
	}
	return n
}

// take keeps payload, unmasked, up to maxFrameData.
func (s *socketReader) take(b []byte) {
	have := len(s.data)
	b = b[:min(len(b), maxFrameData-have)]
	if have == 0 && len(b) > 0 {
		s.data = make([]byte, 0, min(s.size, maxFrameData))
	}
	for i, c := range b {
		s.data = append(s.data, c^s.mask[(have+i)&3])
	}
}

func (w *webSocket) frameEnded(s *socketReader, at time.Duration) {
	s.inFrame = false
	f := Frame{At: at - w.record.start, FromClient: s.fromClient, Kind: kindOf(s.opcode, s.messageOf), Size: s.size,
		Data: s.data}
	isData := s.opcode <= 2
	if isData && s.compressed && s.inflate != nil {
		f.Data = s.inflate.frame(s.data, s.size, s.final)
	}
	s.data = nil
	w.record.addFrame(f)
}

func kindOf(opcode, messageOf byte) string {
	switch cmp.Or(opcode, messageOf) {
	case 1:
		return FrameText
	case 8:
		return FrameClose
	case 9:
		return FramePing
	case 10:
		return FramePong
	}
	return FrameBinary
}

// skip handles missing bytes.
func (w *webSocket) skip(fromClient bool, n int64) {
	s := w.reader(fromClient)
	if !s.inFrame || n > s.rest {
		s.broken = true
		w.record.err = errLost
		return
	}
	s.rest -= n
	if s.rest == 0 {
		w.frameEnded(s, w.record.last)
	}
}

// skippable returns how many of the next bytes need not be recorded.
func (w *webSocket) skippable(fromClient bool) int64 {
	s := w.reader(fromClient)
	switch {
	case s.broken:
		return maxBuffer
	case s.inFrame && len(s.data) == maxFrameData:
		return s.rest
	}
	return 0
}

const (
	inflateWindow = 32 << 10
	maxInflated   = 1 << 20 // bytes of one message; more is not decompressed
)

// inflater decompresses the messages of one direction of a WebSocket (permessage-deflate, RFC
// 7692). After a message of which not everything was recorded it decompresses nothing any more:
// later messages may refer to it.
type inflater struct {
	message []byte // the frames so far
	window  []byte // the end of what was decompressed before
	broken  bool
}

// frame takes the next frame of a compressed message. It returns the whole message, at most
// maxFrameData of it, behind its last frame, and else nil.
func (d *inflater) frame(data []byte, size int64, final bool) []byte {
	if int64(len(data)) != size || len(d.message)+len(data) > maxInflated {
		d.broken, d.message, d.window = true, nil, nil
	}
	if d.broken {
		return nil
	}
	d.message = append(d.message, data...)
	if !final {
		return nil
	}
	// The message lacks the end of its last block; an empty final block ends the stream.
	in := append(d.message, 0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff)
	d.message = nil
	r := flate.NewReaderDict(bytes.NewReader(in), d.window)
	out, err := io.ReadAll(io.LimitReader(r, maxInflated+1))
	if err != nil || len(out) > maxInflated {
		d.broken, d.window = true, nil
		return nil
	}
	d.window = append(d.window, out...)
	d.window = bytes.Clone(d.window[max(len(d.window)-inflateWindow, 0):])
	return bytes.Clone(out[:min(len(out), maxFrameData)])
}
