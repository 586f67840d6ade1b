// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package forward

import "net"

// keepAlive enables TCP keep-alive on accepted connections.
func keepAlive(config *net.ListenConfig) {
	config.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval,
		Count: keepAliveProbes}
}

// hasUnreadInput returns false: on other systems it is unknown, which costs one system call.
func hasUnreadInput(net.Conn) bool { return false }
