// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package connread

import "errors"

// CanPoll is false where a socket cannot be read without waiting: a connection then keeps its
// buffer while it is idle.
const CanPoll = false

// Available returns an error: see CanPoll.
func Available(uintptr, []byte) (n int, ready bool, err error) { return 0, true, errors.ErrUnsupported }

// Peek returns an error: see CanPoll.
func Peek(uintptr) (first byte, ready bool, err error) { return 0, true, errors.ErrUnsupported }
