// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK

	// copiesWithoutPipe is how many times a direction that got no pipe copies before it asks again.
	copiesWithoutPipe = 64
)

// spliceCounter is a connection that counts its bytes. CountSpliced is called once a step.
type spliceCounter interface{ CountSpliced(read, written int) }

// splicer moves the bytes of one direction from socket to socket inside the kernel. It holds a pipe
// only while there are bytes to move.
type splicer struct {
	*direction
	src                *Source
	fromCount, toCount spliceCounter // nil for a connection that does not count

	in, out syscall.RawConn // in and out are the sockets, once both are known.
	copies  int             // copies that are still to be made before a pipe is asked for

	pipe *pipe
	held int   // bytes in the pipe
	err  error // err is the error of the last system call.
}

// newSplice returns a function that moves the bytes of a direction for as long as it can. The
// function returns nil where src.Next must be called: at the end of input, for the error of a
// connection that was closed here, and when splice(2) is not possible, at least not now. newSplice
// returns nil for connections that never have a socket.
func newSplice(d *direction, src *Source) func() error {
	_, fromOK := socketOf(d.from)
	_, toOK := socketOf(d.to)
	if !fromOK || !toOK {
		return nil
	}
	s := &splicer{direction: d, src: src}
	s.fromCount, _ = d.from.(spliceCounter)
	s.toCount, _ = d.to.(spliceCounter)
	fill, drain := s.fillPipe, s.drainPipe // bound once: no step allocates
	return func() error { return s.run(fill, drain) }
}

// socketOf returns the TCP connection that a connection's bytes pass unchanged, or nil while bytes
// are buffered above it. ever is false if there will be none.
func socketOf(c net.Conn) (socket *net.TCPConn, ever bool) {
	switch c := c.(type) {
	case *net.TCPConn:
		return c, true
	case interface{ Socket() *net.TCPConn }:
		return c.Socket(), true
	}
	return nil, false
}

// run moves bytes; see newSplice.
func (s *splicer) run(fill, drain func(uintptr) bool) error {
	if s.copies > 0 {
		s.copies--
		return nil
	}
	if !s.haveSockets() {
		return nil
	}
	s.src.Release()
	defer s.releasePipe()
	for {
		s.err = nil
		if err := s.in.Read(fill); err != nil || s.held == 0 {
			return wrapError("reading", s.err)
		}
		filled := s.held
		if s.fromCount != nil {
			s.fromCount.CountSpliced(filled, 0)
		}
		if err := s.out.Write(drain); err != nil {
			s.err = err
			if _, own := s.to.Write(nil); own != nil {
				s.err = own // the connection knows why it was closed
			}
		}
		if s.toCount != nil {
			s.toCount.CountSpliced(0, filled-s.held)
		}
		if s.err != nil {
			return &writeError{s.err}
		}
	}
}

// haveSockets reports whether the bytes of both connections pass their sockets unchanged now.
func (s *splicer) haveSockets() bool {
	from, _ := socketOf(s.from)
	to, _ := socketOf(s.to)
	if from == nil || to == nil {
		return false
	}
	if s.in == nil {
		in, inErr := from.SyscallConn()
		out, outErr := to.SyscallConn()
		if inErr != nil || outErr != nil {
			return false
		}
		s.in, s.out = in, out
	}
	return true
}

// fillPipe moves the bytes that are available into a pipe. It returns false, and holds no pipe, to
// wait for some. The pipe stays empty at the end of input, after an error, and when splice(2) is not
// possible.
func (s *splicer) fillPipe(fd uintptr) (ready bool) {
	if s.pipe == nil {
		if s.pipe = takePipe(); s.pipe == nil {
			s.copies = copiesWithoutPipe
			return true
		}
	}
	for {
		n, err := unix.Splice(int(fd), nil, s.pipe.in, nil, pipeSize, spliceFlags)
		switch {
		case err == nil:
			s.held = int(n)
			return true
		case errors.Is(err, unix.EAGAIN):
			s.releasePipe()
			return false
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			s.copies = math.MaxInt
			return true
		case !errors.Is(err, unix.EINTR):
			s.err = os.NewSyscallError("splice", err)
			return true
		}
	}
}

// drainPipe moves what the pipe holds to the output. It returns false to wait until the output
// takes more.
func (s *splicer) drainPipe(fd uintptr) (ready bool) {
	for s.held > 0 {
		n, err := unix.Splice(s.pipe.out, nil, int(fd), nil, s.held, spliceFlags)
		switch {
		case n > 0:
			moved := int(n)
			s.held -= moved
			s.moved.Add(int64(moved))
		case err == nil:
			s.err = io.ErrShortWrite
			return true
		case errors.Is(err, unix.EAGAIN):
			return false
		case !errors.Is(err, unix.EINTR):
			s.err = os.NewSyscallError("splice", err)
			return true
		}
	}
	return true
}

// releasePipe returns the pipe to the pool, or closes it if bytes are left in it.
func (s *splicer) releasePipe() {
	if s.pipe != nil {
		s.pipe.release(s.held == 0)
		s.pipe, s.held = nil, 0
	}
}

// isReset reports whether a TCP connection whose output was not closed here no longer exists.
func isReset(c net.Conn) (reset bool) {
	if tcp, _ := socketOf(c); tcp != nil {
		c = tcp
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		// Multipath TCP would show the state of its first path.
		protocol, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if err == nil && protocol == unix.IPPROTO_TCP {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			reset = err == nil && info.State == unix.BPF_TCP_CLOSE
		}
	})
	return reset
}
