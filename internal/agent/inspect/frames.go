// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/binary"
	"strings"
	"time"
)

// splitter cuts a body into frames.
type splitter interface {
	split(x *record, at time.Duration, b []byte)
}

// splitterFor returns the splitter for a body; nil if it has no frames.
func splitterFor(info headInfo, fromClient bool) splitter {
	switch {
	case info.encoded:
		return nil
	case strings.HasPrefix(info.contentType, "application/grpc"):
		return &grpcSplitter{fromClient: fromClient}
	case !fromClient && strings.HasPrefix(info.contentType, "text/event-stream"):
		return &eventSplitter{}
	}
	return nil
}

// eventSplitter cuts server-sent events at empty lines.
type eventSplitter struct {
	data    []byte
	size    int64
	newline bool // the last byte ended a line
}

func (s *eventSplitter) split(x *record, at time.Duration, b []byte) {
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n') + 1
		line := b
		if n > 0 {
			line = b[:n]
		}
		b = b[len(line):]
		isEmpty := s.size == 0 || s.newline
		isEmpty = isEmpty && n > 0 && len(bytes.TrimRight(line, "\r\n")) == 0
		s.newline = n > 0 || s.newline && string(line) == "\r" // the rest of "\r\n" may follow
		if !isEmpty {
			s.size += int64(len(line))
			s.data = append(s.data, line[:min(len(line), maxFrameData-len(s.data))]...)
			continue
		}
		if line[0] == '\n' && bytes.HasSuffix(s.data, []byte("\n\r")) { // the empty line came in two pieces
			s.data, s.size = s.data[:len(s.data)-1], s.size-1
		}
		if s.size > 0 {
			x.addFrame(Frame{At: at - x.start, Kind: FrameEvent, Size: s.size, Data: s.data})
		}
		*s = eventSplitter{}
	}
}

// grpcSplitter cuts gRPC messages: a flag, a length of four bytes, then the message.
type grpcSplitter struct {
	fromClient bool
	prefix     []byte
	inMessage  bool
	size, rest int64
	data       []byte
}

func (s *grpcSplitter) split(x *record, at time.Duration, b []byte) {
	for len(b) > 0 || s.inMessage && s.rest == 0 {
		if !s.inMessage {
			n := min(len(b), 5-len(s.prefix))
			s.prefix = append(s.prefix, b[:n]...)
			b = b[n:]
			if len(s.prefix) < 5 {
				return
			}
			s.size = int64(binary.BigEndian.Uint32(s.prefix[1:]))
			s.rest, s.inMessage, s.prefix, s.data = s.size, true, s.prefix[:0], nil
			continue
		}
		n := int(min(int64(len(b)), s.rest))
		s.data = append(s.data, b[:min(n, maxFrameData-len(s.data))]...)
		b = b[n:]
		if s.rest -= int64(n); s.rest == 0 {
			s.inMessage = false
			x.addFrame(Frame{At: at - x.start, FromClient: s.fromClient, Kind: FrameGRPC, Size: s.size, Data: s.data})
		}
	}
}
