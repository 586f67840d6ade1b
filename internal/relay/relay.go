// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package relay joins two connections: bytes, half-close and aborts go both ways.
package relay

import (
	"context"
	"net"
	"time"
)

// HalfCloser is what both ends must offer: *net.TCPConn, *tls.Conn and the tunnel's Stream do.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

// Options change how Join works. The zero value is fine.
type Options struct {
	// HalfCloseTimeout ends a connection that is closed in one direction and idle in the other for so long. 0 = 1 h.
	HalfCloseTimeout time.Duration
}

// Result counts the bytes that were moved.
type Result struct{ AToB, BToA int64 }

// Join copies both ways until both directions have ended, then closes both. It owns a and b.
func Join(ctx context.Context, a, b HalfCloser, opt Options) (Result, error) {
	panic("relay: not built yet")
}
