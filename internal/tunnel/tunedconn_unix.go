// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package tunnel

import (
	"errors"
	"io"
	"syscall"
)

const canPoll = true

// pollRead reads the bytes that are available. It takes a buffer only when there are some, and
// returns false to wait for them.
func (c *tunedConn) pollRead(fd uintptr) bool {
	in := flightBuffers.Get().(*[flightSize]byte)
	for {
		n, err := syscall.Read(int(fd), in[:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if n > 0 {
			c.in, c.inPos, c.inEnd = in, 0, n
			return true
		}
		flightBuffers.Put(in)
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		if err == nil {
			err = io.EOF
		}
		c.pollErr = err
		return true
	}
}
