// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"sync"
	"syscall"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

const (
	bufferSize = 64 << 10 // the payload of one frame of the tunnel
	probeSize  = 1 << 10
)

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Source reads from a connection. It holds a buffer only while there are bytes to read, if the
// connection can be polled. A connection with a Next method lends its own bytes.
type Source struct {
	conn net.Conn
	buf  *buffer // held between calls of Next, or nil

	zeroCopy interface{ Next() ([]byte, error) } // a tunnel stream

	raw  syscall.RawConn // a socket that can be polled
	poll func(fd uintptr) bool
	n    int
	err  error

	probe []byte // for any other connection: buffer of a small first read
	bulk  bool   // the last read filled at least probe
}

// NewSource returns a Source of c. No other reader of c is allowed.
func NewSource(c net.Conn) *Source {
	s := &Source{conn: c}
	if zeroCopy, ok := c.(interface{ Next() ([]byte, error) }); ok {
		s.zeroCopy = zeroCopy
		return s
	}
	if tcp, ok := c.(*net.TCPConn); ok && connread.CanPoll {
		if raw, err := tcp.SyscallConn(); err == nil {
			s.raw, s.poll = raw, s.pollRead
			return s
		}
	}
	s.probe = make([]byte, probeSize)
	return s
}

// Next returns bytes, valid until the next call of Next or Release, or an error, or both. The end
// of input is io.EOF, never wrapped.
func (s *Source) Next() ([]byte, error) {
	switch {
	case s.zeroCopy != nil:
		return s.zeroCopy.Next()
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

// pollRead reads the bytes that are available. It keeps a buffer only when there are some, and
// returns false to wait for them.
func (s *Source) pollRead(fd uintptr) (ready bool) {
	s.acquireBuffer()
	if s.n, ready, s.err = connread.Available(fd, s.buf[:]); s.n == 0 {
		s.Release()
	}
	return ready
}

// readProbed reads with the small buffer first, and with a large one while much arrives.
func (s *Source) readProbed() ([]byte, error) {
	b := s.probe
	if s.bulk {
		s.acquireBuffer()
		b = s.buf[:]
	} else {
		s.Release()
	}
	n, err := s.conn.Read(b)
	s.bulk = n >= probeSize
	return b[:n], err
}

func (s *Source) acquireBuffer() {
	if s.buf == nil {
		s.buf = buffers.Get().(*buffer)
	}
}

// Release returns the buffer to the pool.
func (s *Source) Release() {
	if s.buf != nil {
		buffers.Put(s.buf)
		s.buf = nil
	}
}
