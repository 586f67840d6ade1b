// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"log/slog"
	"net"
	"sync"
)

// congestionWarning logs once that connections cannot use bbr.
type congestionWarning struct{ once sync.Once }

func (n *congestionWarning) check(log *slog.Logger, raw net.Conn) {
	name := congestionControl(raw)
	if name == "" || name == bbr {
		return
	}
	n.once.Do(func() {
		log.Info(
			"the kernel does not let connections use bbr, so lost packets slow them down; its sysctl "+
				"net.ipv4.tcp_allowed_congestion_control can", "congestion_control", name)
	})
}
