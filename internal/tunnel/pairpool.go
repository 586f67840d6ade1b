// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

// A parked connection waits for a sealed stream. The side that opens streams uses one that is younger
// than parkedUsable; the client closes what is unused after clientParked, and the server, which should
// never be the first, after serverParked. One of them stays, unused, for about canaryParked: its end
// shows that pairs which are idle for long are cut, too.
const (
	parkedUsable = 50 * time.Second
	clientParked = 60 * time.Second
	serverParked = 75 * time.Second
	canaryParked = time.Hour
	maxParked    = 17 // connections and tickets of a session at a server
)

// pairPool has the parked connections of a session, on the client's side with one replica, by the
// numbers that the server gave them.
type pairPool struct {
	lifetime time.Duration
	budget   *PairBudget
	account  string // account is the id of the session's account.
	tickets  int    // tickets counts those for further ones; guarded by the mutex of the server's tickets.

	mu     sync.Mutex
	closed bool
	parked map[uint64]*parkedConn
	canary *parkedConn // canary is the one that stays, on the client's side.
	wasCut bool        // wasCut is set when one was found to have ended before its time.
}

// parkedConn is a connection that waits for its stream. It is in its pool already while the client
// still waits for the server's answer.
type parkedConn struct {
	pool   *pairPool
	id     uint64
	since  time.Time
	conn   *tunedConn    // conn is set when ready is closed; nil = there is none.
	ready  chan struct{} // ready is closed once conn is set, or will never be.
	expiry *time.Timer

	endSeen time.Time // endSeen is when the pool found that the connection had ended.
}

func newPairPool(lifetime time.Duration, budget *PairBudget, accountID string) *pairPool {
	return &pairPool{lifetime: lifetime, budget: budget, account: accountID, parked: make(map[uint64]*parkedConn)}
}

// reserve reports whether there may be one more connection. Then release, or the connection's close, has
// to follow.
func (p *pairPool) reserve() bool { return p.budget.reserve(p.account) }

func (p *pairPool) release() { p.budget.release(p.account) }

// expect adds a connection that is being made, for which reserve has succeeded, or returns nil once the
// pool is closed.
func (p *pairPool) expect(id uint64) *parkedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.parked[id] != nil {
		return nil
	}
	c := &parkedConn{pool: p, id: id, since: time.Now(), ready: make(chan struct{})}
	p.parked[id] = c
	return c
}

// park makes conn usable, after begin has succeeded. It closes conn if begin fails or the pool is
// closed.
func (c *parkedConn) park(conn *tunedConn, begin func() error) error {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	defer close(c.ready)
	err := net.ErrClosed
	if !c.pool.closed {
		err = begin()
	}
	if err != nil {
		delete(c.pool.parked, c.id)
		_ = conn.Close()
		c.pool.release()
		return err
	}
	c.conn, c.since = conn, time.Now()
	if c.pool.parked[c.id] == c { // else a stream waits for it
		c.expiry = time.AfterFunc(c.pool.lifetime, c.expire)
	}
	return nil
}

// fail removes a connection that could not be made.
func (c *parkedConn) fail() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	delete(c.pool.parked, c.id)
	c.pool.release()
	close(c.ready)
}

func (c *parkedConn) close() {
	_ = c.conn.Close()
	c.pool.release()
}

// expire closes an unused connection, unless it is to be the canary. The server keeps what the client
// does.
func (c *parkedConn) expire() {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parked[c.id] != c {
		return
	}
	isSurplus := p.lifetime == clientParked && p.canary != nil && p.canary != c
	if !isSurplus && time.Since(c.since) < canaryParked+2*p.lifetime {
		if !hasEnded(c.conn) {
			p.canary = c
			c.expiry.Reset(p.lifetime)
			return
		}
		p.wasCut = true
	}
	p.removeLocked(c)
	c.close()
}

func (p *pairPool) removeLocked(c *parkedConn) {
	delete(p.parked, c.id)
	if p.canary == c {
		p.canary = nil
	}
	if c.expiry != nil {
		c.expiry.Stop()
	}
}

// takeUsable removes and returns a connection for a stream that this side opens; nil = there is none.
func (p *pairPool) takeUsable() *parkedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.parked {
		if c.conn == nil || time.Since(c.since) >= parkedUsable {
			continue
		}
		if p.removeLocked(c); !hasEnded(c.conn) {
			return c
		}
		c.close()
		p.wasCut = true
	}
	return nil
}

// take removes and returns the connection of a stream that the peer opened, which may be ahead of the
// server's answer; nil = there is none with this number.
func (p *pairPool) take(id uint64) *tunedConn {
	p.mu.Lock()
	c := p.parked[id]
	if c != nil {
		p.removeLocked(c)
	}
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	<-c.ready // at the latest when the time for parking it is over
	return c.conn
}

// dropCut closes the connections that have ended, and reports whether there were some since its last
// call.
func (p *pairPool) dropCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.parked {
		switch {
		case c.conn == nil || !hasEnded(c.conn):
		case c.endSeen.IsZero():
			c.endSeen = time.Now() // the header of its stream may be on the way
		case time.Since(c.endSeen) >= pairEndTimeout:
			p.removeLocked(c)
			c.close()
			p.wasCut = true
		}
	}
	wasCut := p.wasCut
	p.wasCut = false
	return wasCut
}

// recordCut records that something on the way has cut a connection in use.
func (p *pairPool) recordCut() {
	p.mu.Lock()
	p.wasCut = true
	p.mu.Unlock()
}

// hasEnded reports whether the peer, or something on the way, has ended a connection.
func hasEnded(c *tunedConn) bool {
	ended := false
	err := c.raw.Read(func(fd uintptr) bool {
		_, _, err := connread.Peek(fd)
		ended = err != nil
		return true
	})
	return err != nil || ended
}

// count returns how many connections there are that were parked, or are being made, since a time.
func (p *pairPool) count(since time.Time) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.parked {
		if c.since.After(since) {
			n++
		}
	}
	return n
}

// avoid makes the pool lend no connection that comes from elsewhere than a new one of the session, as
// its client may have moved to another network. It closes none: a client with several addresses would
// mistake that for a cut on the way.
func (p *pairPool) avoid(from net.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.parked {
		if c.conn != nil && hostOf(from) != hostOf(c.conn.RemoteAddr()) {
			c.since = c.since.Add(-parkedUsable)
		}
	}
}

// putBack takes a connection whose stream could not be opened. For the same reason, the server keeps it
// until it expires.
func (p *pairPool) putBack(c *parkedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.lifetime == clientParked {
		c.close()
		return
	}
	c.since = c.since.Add(-parkedUsable)
	p.parked[c.id] = c
	c.expiry.Reset(p.lifetime)
}

// drop closes all connections.
func (p *pairPool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.parked {
		if c.conn != nil {
			p.removeLocked(c)
			c.close()
		}
	}
}

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String())
	return host
}

// close closes all connections. The pool takes no more: park and fail end those that are being made.
func (p *pairPool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drop()
}
