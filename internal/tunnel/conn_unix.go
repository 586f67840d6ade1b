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

// pollRead reads what is there. It takes a buffer only when there is something to read, and returns
// false to wait for it.
func (c *tunedConn) pollRead(fd uintptr) bool {
	in := flights.Get().(*[flightSize]byte)
	for {
		n, err := syscall.Read(int(fd), in[:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if n > 0 {
			c.in, c.inPos, c.inEnd = in, 0, n
			return true
		}
		flights.Put(in)
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
