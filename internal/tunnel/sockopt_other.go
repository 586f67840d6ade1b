// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tunnel

import "net"

// tuneTCP does nothing: only Linux has TCP_USER_TIMEOUT and a congestion control of each
// connection's own. Pings find the dead peer.
func tuneTCP(*net.TCPConn) {}

func congestion(net.Conn) string { return "" }

func resent(net.Conn) (again, all uint32) { return 0, 0 }

const bbr = "bbr"
