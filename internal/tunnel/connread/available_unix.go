// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package connread

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// CanPoll is true where Available works.
const CanPoll = true

// Peek returns the first byte that is available at a non-blocking socket without reading it. ready is
// false when there is none yet. The error is io.EOF at the end of input.
func Peek(fd uintptr) (first byte, ready bool, err error) {
	var b [1]byte
	for {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		switch {
		case n > 0:
			return b[0], true, nil
		case err == nil:
			return 0, true, io.EOF
		case errors.Is(err, syscall.EAGAIN):
			return 0, false, nil
		case !errors.Is(err, syscall.EINTR):
			return 0, true, os.NewSyscallError("recvfrom", err)
		}
	}
}

// Available reads the bytes that are available at a non-blocking file descriptor into b. ready is
// false when there are none yet. Otherwise it returns at least one byte or an error, which is
// io.EOF at the end of input.
func Available(fd uintptr, b []byte) (n int, ready bool, err error) {
	for {
		n, err := syscall.Read(int(fd), b)
		switch {
		case n > 0:
			return n, true, nil
		case err == nil:
			return 0, true, io.EOF
		case errors.Is(err, syscall.EAGAIN):
			return 0, false, nil
		case !errors.Is(err, syscall.EINTR):
			return 0, true, os.NewSyscallError("read", err)
		}
	}
}
