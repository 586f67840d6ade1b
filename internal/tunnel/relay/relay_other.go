// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import "net"

// newSplice returns nil: only Linux has splice(2).
func newSplice(*direction, *Source) func() error { return nil }

// isReset returns false: see its implementation for Linux.
func isReset(net.Conn) bool { return false }
