// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	spliceStep  = 1 << 20 // bytes of one step, at most
	spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK

	// copiesWithoutPipe is how many times a direction that got no pipe copies before it asks again.
	copiesWithoutPipe = 64
)

// spliceRefused lists the errors of systems and sockets on which splice(2) does not work.
var spliceRefused = []error{unix.EINVAL, unix.ENOSYS, unix.EPERM, unix.EOPNOTSUPP}

// socketOwner is a connection whose bytes pass a TCP connection unchanged. Socket returns nil while
// it holds bytes that its peer, or its reader, does not have yet.
type socketOwner interface{ Socket() *net.TCPConn }

// spliceCounter is a connection that counts its bytes. CountSpliced is called once a step.
type spliceCounter interface{ CountSpliced(read, written int) }

// splicer moves the bytes of one direction from socket to socket inside the kernel. It holds a pipe
// only while there are bytes to move.
type splicer struct {
	src                *Source
	to                 HalfCloser
	fromOwner, toOwner socketOwner   // nil for a *net.TCPConn
	fromCount, toCount spliceCounter // nil for a connection that does not count
	moved              *atomic.Int64

	in, out syscall.RawConn // in and out are the sockets, once both are known.
	copies  int             // copies that are still to be made before a pipe is asked for

	pipe *pipe
	held int   // bytes in the pipe
	err  error // err is the error of the last system call.
}

// newSplice returns a function that moves the bytes of src to another connection for as long as it
// can. It returns nil where src.Next must be called: at the end of input, after an error of a
// connection that was closed here, and when splice(2) is not possible, at least not now. newSplice
// returns nil for connections that never have a socket.
func newSplice(src *Source, to HalfCloser, moved *atomic.Int64) func() error {
	s := &splicer{src: src, to: to, moved: moved}
	var fromOK, toOK bool
	if s.fromOwner, fromOK = ownerOf(src.conn); !fromOK {
		return nil
	}
	if s.toOwner, toOK = ownerOf(to); !toOK {
		return nil
	}
	s.fromCount, _ = src.conn.(spliceCounter)
	s.toCount, _ = to.(spliceCounter)
	fill, drain := s.fillPipe, s.drainPipe // bound once: no step allocates
	return func() error { return s.run(fill, drain) }
}

func ownerOf(c net.Conn) (owner socketOwner, ok bool) {
	if _, ok := c.(*net.TCPConn); ok {
		return nil, true
	}
	owner, ok = c.(socketOwner)
	return owner, ok
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
	from, to := socketOf(s.src.conn, s.fromOwner), socketOf(s.to, s.toOwner)
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

func socketOf(c net.Conn, owner socketOwner) *net.TCPConn {
	if owner != nil {
		return owner.Socket()
	}
	return c.(*net.TCPConn)
}

// fillPipe moves the bytes that are available into a pipe. It returns false, and holds no pipe, to
// wait for some. The pipe is empty after it at the end of input, after an error, and when
// splice(2) is not possible.
func (s *splicer) fillPipe(fd uintptr) (ready bool) {
	if s.pipe == nil {
		if s.pipe = takePipe(); s.pipe == nil {
			s.copies = copiesWithoutPipe
			return true
		}
	}
	for {
		n, err := unix.Splice(int(fd), nil, s.pipe.in, nil, spliceStep, spliceFlags)
		switch {
		case err == nil:
			s.held = int(n)
			return true
		case errors.Is(err, unix.EAGAIN):
			s.releasePipe()
			return false
		case slices.Contains(spliceRefused, err):
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
			s.held -= int(n)
			s.moved.Add(int64(n))
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
