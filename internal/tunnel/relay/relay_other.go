// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import (
	"net"
	"sync/atomic"
)

// newSplice returns nil: only Linux has splice(2).
func newSplice(*Source, HalfCloser, *atomic.Int64) func() error { return nil }

// isReset returns false: see its implementation for Linux.
func isReset(net.Conn) bool { return false }
