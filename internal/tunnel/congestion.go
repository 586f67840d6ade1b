// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"log/slog"
	"net"
	"sync"
)

// congestionNote says once in the log that connections do without bbr.
type congestionNote struct{ once sync.Once }

func (n *congestionNote) take(log *slog.Logger, raw net.Conn) {
	name := congestion(raw)
	if name == "" || name == bbr {
		return
	}
	n.once.Do(func() {
		log.Info(
			"the kernel does not let connections use bbr, so lost packets slow them down; its sysctl "+
				"net.ipv4.tcp_allowed_congestion_control can", "congestion_control", name)
	})
}
