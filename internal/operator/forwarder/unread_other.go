// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package forwarder

import "net"

// hasUnreadInput returns false: on other systems it is unknown, which costs one system call.
func hasUnreadInput(net.Conn) bool { return false }
