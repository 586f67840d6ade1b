// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package forwarder

import "net"

// keepAlive makes accepted connections ask whether their clients are still there.
func keepAlive(config *net.ListenConfig) {
	config.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval,
		Count: keepAliveProbes}
}
