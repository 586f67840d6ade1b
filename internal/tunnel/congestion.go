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

// A connection is lossy when it had to send again one packet in lossRate, and at least lossCount,
// of the last lossSpan packets or more. Only the latest packets count, so that a change of the
// network is noticed soon.
const (
	lossSpan  = 1000
	lossRate  = 500
	lossCount = 5
)

// lossDetector detects that from the counters of a connection.
type lossDetector struct {
	retransmitted, sent uint32 // counters at the end of the last lossSpan
	lossy               bool   // result at that time
}

// update takes the current counters of packets that were sent again, and of all packets sent, and
// reports whether the connection is lossy. The counters may wrap.
func (l *lossDetector) update(retransmitted, sent uint32) bool {
	newLost, newSent := retransmitted-l.retransmitted, sent-l.sent
	lossy := newLost >= lossCount && newLost >= newSent/lossRate
	if newSent < lossSpan {
		return lossy || l.lossy
	}
	*l = lossDetector{retransmitted, sent, lossy}
	return lossy
}

// isLossy reports whether lost packets slow the connection down. The session's mutex must be held.
func (c *muxConn) isLossy() bool {
	if c.below == nil {
		return false
	}
	retransmitted, sent := retransmits(c.below.Conn)
	return retransmitted > 0 && congestionControl(c.below.Conn) != bbr && c.losses.update(retransmitted, sent)
}
