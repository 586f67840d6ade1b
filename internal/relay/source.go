// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"io"
	"net"
	"sync"
	"syscall"
)

const (
	bufferSize = 64<<10 - 12 // the payload of one frame of the tunnel
	probeSize  = 1 << 10
)

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// source yields what a connection has to read. It holds a buffer only while there is something to read, if the connection lets it know.
type source struct {
	conn net.Conn
	buf  *buffer // held from next to next, or nil

	ready interface{ WaitReadable() error } // a tunnel stream

	raw  syscall.RawConn // a socket that can be polled
	poll func(fd uintptr) bool
	n    int
	err  error

	probe []byte // any other connection: a small first read
	hot   bool   // the last read filled the probe or more
}

func newSource(c net.Conn) *source {
	s := &source{conn: c}
	if ready, ok := c.(interface{ WaitReadable() error }); ok {
		s.ready = ready
		return s
	}
	if tcp, ok := c.(*net.TCPConn); ok && canPoll {
		if raw, err := tcp.SyscallConn(); err == nil {
			s.raw, s.poll = raw, s.pollRead
			return s
		}
	}
	s.probe = make([]byte, probeSize)
	return s
}

// next returns bytes, valid until the next call, or an error, or both. The end of input is io.EOF itself.
func (s *source) next() ([]byte, error) {
	switch {
	case s.ready != nil:
		s.release()
		if err := s.ready.WaitReadable(); err != nil {
			return nil, err
		}
		s.take()
		n, err := s.conn.Read(s.buf[:])
		return s.buf[:n], err
	case s.raw != nil:
		s.n, s.err = 0, nil
		if err := s.raw.Read(s.poll); err != nil {
			return nil, err
		}
		if s.buf == nil {
			return nil, s.err
		}
		return s.buf[:s.n], s.err
	default:
		return s.readProbed()
	}
}

// readProbed reads a little first, and with a large buffer while there is much.
func (s *source) readProbed() ([]byte, error) {
	b := s.probe
	if s.hot {
		s.take()
		b = s.buf[:]
	} else {
		s.release()
	}
	n, err := s.conn.Read(b)
	s.hot = n >= probeSize
	return b[:n], err
}

func (s *source) take() {
	if s.buf == nil {
		s.buf = buffers.Get().(*buffer)
	}
}

func (s *source) release() {
	if s.buf != nil {
		buffers.Put(s.buf)
		s.buf = nil
	}
}

func isEnd(err error) bool { return err == io.EOF } //nolint:errorlint // a broken tunnel may wrap io.EOF: only the bare one is an end
