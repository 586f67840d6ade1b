// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tunnel

import "net"

// tuneTCP does nothing: only Linux has TCP_USER_TIMEOUT and per-connection congestion control.
// Pings detect a dead peer.
func tuneTCP(*net.TCPConn) {}

func allowSlowReader(*net.TCPConn) {}

func congestionControl(net.Conn) string { return "" }

func retransmits(net.Conn) (retransmitted, sent uint32) { return 0, 0 }

// maxDescriptors returns a number of descriptors that the systems allow.
func maxDescriptors() uint64 { return 8192 }

const bbr = "bbr"

const canSplice = false
