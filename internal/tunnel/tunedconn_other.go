// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package tunnel

// canPoll is false where a socket cannot be read without waiting: a connection then keeps its
// buffer while it is idle.
const canPoll = false

func (c *tunedConn) pollRead(uintptr) bool { return true }
