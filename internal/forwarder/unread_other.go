// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package forwarder

import "net"

// hasUnreadInput does not know, and nothing depends on it but a system call.
func hasUnreadInput(net.Conn) bool { return false }
