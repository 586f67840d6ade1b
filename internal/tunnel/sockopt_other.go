// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tunnel

import (
	"net"
	"time"
)

// setUserTimeout does nothing: only Linux has TCP_USER_TIMEOUT. Pings find the dead peer.
func setUserTimeout(*net.TCPConn, time.Duration) {}
