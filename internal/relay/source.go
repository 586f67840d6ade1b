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
	bufferSize = 64 << 10 // the payload of one frame of the tunnel
	probeSize  = 1 << 10
)

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Source yields what a connection has to read. It holds a buffer only while there is something to
// read, if the connection lets it know; a connection with a Next of its own lends its bytes.
type Source struct {
	conn net.Conn
	buf  *buffer // held from next to next, or nil

	lender interface{ Next() ([]byte, error) } // a tunnel stream

	raw  syscall.RawConn // a socket that can be polled
	poll func(fd uintptr) bool
	n    int
	err  error

	probe []byte // any other connection: a small first read
	hot   bool   // the last read filled the probe or more
}

// NewSource makes the Source of c. Nobody else may read from c.
func NewSource(c net.Conn) *Source {
	s := &Source{conn: c}
	if lender, ok := c.(interface{ Next() ([]byte, error) }); ok {
		s.lender = lender
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

// Next returns bytes, valid until the next call of Next or Release, or an error, or both. The end
// of input is io.EOF itself.
func (s *Source) Next() ([]byte, error) {
	switch {
	case s.lender != nil:
		return s.lender.Next()
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
func (s *Source) readProbed() ([]byte, error) {
	b := s.probe
	if s.hot {
		s.take()
		b = s.buf[:]
	} else {
		s.Release()
	}
	n, err := s.conn.Read(b)
	s.hot = n >= probeSize
	return b[:n], err
}

func (s *Source) take() {
	if s.buf == nil {
		s.buf = buffers.Get().(*buffer)
	}
}

// Release gives the buffer back.
func (s *Source) Release() {
	if s.buf != nil {
		buffers.Put(s.buf)
		s.buf = nil
	}
}

//nolint:errorlint // a broken tunnel may wrap io.EOF: only the bare one is an end
func isEnd(err error) bool { return err == io.EOF }
