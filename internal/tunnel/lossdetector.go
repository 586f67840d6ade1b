// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

// A connection loses packets when it has to send one of lossRate again, and lossCount, of the last
// lossSpan at least. What was before does not count: a link that gets worse is noticed at once,
// whatever the connection carried until then, and one that has got better is, too.
const (
	lossSpan  = 1000
	lossRate  = 500
	lossCount = 5
)

// losses finds that out from the counters of a connection.
type losses struct {
	again, all uint32 // at the last look after which lossSpan packets had been sent
	lossy      bool   // what was found then
}

// look takes the counters as they are now: packets that were sent again, and all packets. They may
// begin anew after 4 billion.
func (l *losses) look(again, all uint32) bool {
	lost, sent := again-l.again, all-l.all
	lossy := lost >= lossCount && lost >= sent/lossRate
	if sent < lossSpan {
		return lossy || l.lossy
	}
	*l = losses{again, all, lossy}
	return lossy
}

// losing says whether packets are being lost and slow the connection down. The caller holds the
// session's mutex.
func (l *link) losing() bool {
	below := l.conn.below
	if below == nil {
		return false
	}
	again, all := resent(below.Conn)
	return again > 0 && congestion(below.Conn) != bbr && l.losses.look(again, all)
}
