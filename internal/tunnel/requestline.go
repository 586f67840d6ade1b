// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// RequestLine describes one request: for the agent's screen, or for the forwarder that relayed it
// without parsing HTTP. Longer texts are truncated when they are sent.
type RequestLine struct {
	EndpointID string        // at most 128 bytes
	Method     string        // at most 32 bytes; method and path are for the agent only
	Path       string        // at most 512 bytes
	Code       string        // for the forwarder: error code of the edge's own response, at most 64 bytes
	Status     int           // 0 to 65535
	Duration   time.Duration // to the nanosecond
	At         time.Time     // to the nanosecond; it arrives as UTC
}

// LineHostRefused is the Code of a line for an agent whose upstream answered that it does not accept
// the Host. Agents of before do not read it.
const LineHostRefused = "HOST_REFUSED"

// LineDraining is the Code of a line for the agent of a sealed http endpoint: the forwarder, or the
// server, of the stream with the trace id in Path is about to stop, so that its connection should end
// with the next answer. It is no request. As lines may be lost, it is repeated until the stream ends.
const LineDraining = "DRAINING"

// A message of request lines is not JSON, as every request causes one. It is kindLines and then the
// lines, each preceded by its length.
const (
	kindLines     = 0x01 // the message's first byte; that of all others is '{'
	maxLines      = 64   // per message
	maxSmallLines = 7 << 10
	linePrefix    = 2 // length
	fieldPrefix   = 3 // tag, length
	methodLimit   = 32
	pathLimit     = 512
	codeLimit     = 64
	earliestLine  = -62135596800 // seconds since 1970: the year 1
	latestLine    = 253402300799 // the end of the year 9999
)

// The tags of a line's fields. Unknown ones are skipped; missing ones are empty.
const (
	tagLineEndpointID = iota + 1
	tagLineMethod
	tagLinePath
	tagLineCode
	tagLineStatus
	tagLineDuration
	tagLineAt
	tagLineEnd // one past the last that this version knows
)

// textField returns the text with this tag, its name and limit; nil if there is none.
func (l *RequestLine) textField(tag byte) (*string, string, int) {
	switch tag {
	case tagLineEndpointID:
		return &l.EndpointID, "endpoint id", shortValueLimit
	case tagLineMethod:
		return &l.Method, "method", methodLimit
	case tagLinePath:
		return &l.Path, "path", pathLimit
	case tagLineCode:
		return &l.Code, "code", codeLimit
	}
	return nil, "", 0
}

// appendLines appends a message, with its length, of first and of the lines that wait in more. Up
// to maxSmallLines bytes and a line, it is a small frame for the multiplexer, which is sent
// together with others.
func appendLines(b []byte, first *RequestLine, more <-chan RequestLine) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, kindLines)
	b = appendLine(b, first)
	for n := 1; n < maxLines && len(b)-start < maxSmallLines; n++ {
		select {
		case l := <-more:
			b = appendLine(b, &l)
			continue
		default:
		}
		break
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-lengthSize))
	return b
}

func appendLine(b []byte, l *RequestLine) []byte {
	start := len(b)
	b = append(b, 0, 0)
	for tag := byte(tagLineEndpointID); tag <= tagLineCode; tag++ {
		text, _, limit := l.textField(tag)
		if v := truncateText(*text, limit); v != "" {
			b = append(appendField(b, tag, len(v)), v...)
		}
	}
	if status := min(max(l.Status, 0), math.MaxUint16); status != 0 {
		b = binary.BigEndian.AppendUint16(appendField(b, tagLineStatus, 2), uint16(status))
	}
	if l.Duration != 0 {
		b = binary.BigEndian.AppendUint64(appendField(b, tagLineDuration, 8), uint64(l.Duration))
	}
	if seconds := l.At.Unix(); !l.At.IsZero() && seconds >= earliestLine && seconds <= latestLine {
		b = binary.BigEndian.AppendUint64(appendField(b, tagLineAt, 12), uint64(seconds))
		b = binary.BigEndian.AppendUint32(b, uint32(l.At.Nanosecond()))
	}
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-linePrefix))
	return b
}

func appendField(b []byte, tag byte, length int) []byte {
	return append(b, tag, byte(length>>8), byte(length))
}

// isRequestLines reports whether a message consists of request lines.
func isRequestLines(message []byte) bool { return len(message) > 0 && message[0] == kindLines }

// lineReader parses request lines. Texts that are equal to those of the previous line share its
// memory: usually only the path differs.
type lineReader struct{ last RequestLine }

// read calls emit for each line of a message. It has been called for the lines before a malformed
// one when read returns the error.
func (r *lineReader) read(message []byte, emit func(RequestLine)) error {
	b := message[1:]
	if len(b) == 0 {
		return errors.New("request lines: the message has none")
	}
	for n := 1; len(b) > 0; n++ {
		if n > maxLines {
			return fmt.Errorf("request lines: a message has more than %d", maxLines)
		}
		if len(b) < linePrefix || len(b)-linePrefix < int(binary.BigEndian.Uint16(b)) {
			return fmt.Errorf("request lines: line %d is cut off", n)
		}
		size := linePrefix + int(binary.BigEndian.Uint16(b))
		if err := r.parseLine(b[linePrefix:size]); err != nil {
			return fmt.Errorf("request lines: line %d: %w", n, err)
		}
		b = b[size:]
		emit(r.last)
	}
	return nil
}

// parseLine parses the fields of a line into r.last.
func (r *lineReader) parseLine(b []byte) error {
	var l RequestLine
	known := 0 // bit set of the tags
	for len(b) > 0 {
		if len(b) < fieldPrefix || len(b)-fieldPrefix < int(binary.BigEndian.Uint16(b[1:])) {
			return errors.New("a field is cut off")
		}
		tag, value := b[0], b[fieldPrefix:fieldPrefix+int(binary.BigEndian.Uint16(b[1:]))]
		b = b[fieldPrefix+len(value):]
		if tag == 0 || tag >= tagLineEnd {
			continue
		}
		if known&(1<<tag) != 0 {
			return fmt.Errorf("field %d appears twice", tag)
		}
		known |= 1 << tag
		if err := r.setField(&l, tag, value); err != nil {
			return err
		}
	}
	r.last = l
	return nil
}

func (r *lineReader) setField(l *RequestLine, tag byte, value []byte) error {
	if text, name, limit := l.textField(tag); text != nil {
		if len(value) > limit {
			return fmt.Errorf("the %s has %d bytes, at most %d are allowed", name, len(value), limit)
		}
		if before, _, _ := r.last.textField(tag); *before == string(value) {
			*text = *before
		} else {
			*text = string(value)
		}
		return nil
	}
	switch {
	case tag == tagLineStatus && len(value) == 2:
		l.Status = int(binary.BigEndian.Uint16(value))
	case tag == tagLineDuration && len(value) == 8:
		l.Duration = time.Duration(binary.BigEndian.Uint64(value))
	case tag == tagLineAt && len(value) == 12:
		seconds, nanoseconds := int64(binary.BigEndian.Uint64(value)), int64(binary.BigEndian.Uint32(value[8:]))
		if seconds < earliestLine || seconds > latestLine || nanoseconds >= int64(time.Second) {
			return fmt.Errorf("%d s and %d ns is no time", seconds, nanoseconds)
		}
		l.At = time.Unix(seconds, nanoseconds).UTC()
	default:
		return fmt.Errorf("field %d has %d bytes", tag, len(value))
	}
	return nil
}
