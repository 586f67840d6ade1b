// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package relay

import (
	"errors"
	"io"
	"os"
	"syscall"
)

const canPoll = true

// pollRead reads the bytes that are available. It takes a buffer only when there are some, and
// returns false to wait for them.
func (s *Source) pollRead(fd uintptr) bool {
	s.acquireBuffer()
	for {
		n, err := syscall.Read(int(fd), s.buf[:])
		switch {
		case n > 0:
			s.n = n
			return true
		case errors.Is(err, syscall.EINTR):
			continue
		}
		s.Release()
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err == nil:
			s.err = io.EOF
		default:
			s.err = os.NewSyscallError("read", err)
		}
		return true
	}
}
