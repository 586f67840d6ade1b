// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
)

// maxUnauthenticated is how many connections a client may have that have not shown a credential, and
// maxHandshakes how many of all clients may be in their TLS handshake. Many agents and forwarders may
// be one client, behind a NAT: those that are refused retry a moment later, with jitter. At a limit,
// the oldest connection makes room for a new one, of those that have sent nothing if it is silentAge
// old, else of those that have sent a ClientHello if it is shakingAge old, or older, up to
// maxShakingAge, while handshakes do not end before: on a machine that is too slow for the agents that
// come back, each would else be ended for the next. At that of all clients it is
// one of the client with the most handshakes, and of one that has no fewer than the new one's client.
// When there is none, a client with more than its share is refused, and others wait, further ones in
// the kernel's queue.
const (
	maxUnauthenticated = 256
	maxHandshakes      = 512
	silentAge          = 500 * time.Millisecond
	shakingAge         = 2 * time.Second
	maxShakingAge      = 10 * time.Second
	roomPause          = 20 * time.Millisecond // between two looks for a handshake that makes room
)

// unauthenticatedLimiter limits how many connections without a credential each client has, and all
// clients in their TLS handshake. It is safe for concurrent use.
type unauthenticatedLimiter struct {
	max, maxHandshakes int
	log                *slog.Logger

	refused atomic.Int64  // connections that were refused or dropped
	ended   chan struct{} // ended gets a token when a handshake has ended.

	mu         sync.Mutex
	shakingAge time.Duration                           // doubled when a handshake makes room, reset when one has ended
	clients    map[netip.Prefix]*unauthenticatedClient // clients with counted connections
	conns      map[net.Conn]*unauthenticatedConn       // counted connections, by what is below TLS
	// handshakes has the connections whose handshake has not ended, the oldest first.
	handshakes []*unauthenticatedConn
	shaking    int       // number of clients that have handshakes
	logged     time.Time // time of the last warning about handshakes
}

// unauthenticatedClient is a client with connections that have not shown a credential.
type unauthenticatedClient struct {
	key        netip.Prefix
	conns      []*unauthenticatedConn // conns has the oldest first.
	handshakes int                    // number of conns whose handshake has not ended
	logged     bool                   // logged is set once a connection was refused or dropped.
}

type unauthenticatedConn struct {
	net.Conn
	client *unauthenticatedClient
	since  time.Time
	spoke  bool // spoke is set when the connection has sent a ClientHello.
}

// replaceableLocked returns the connection, of some in the order of their age, that makes room for a
// new one, or nil.
func (u *unauthenticatedLimiter) replaceableLocked(conns []*unauthenticatedConn) (best *unauthenticatedConn) {
	now := time.Now()
	for _, c := range conns {
		age := now.Sub(c.since)
		if age < silentAge {
			break
		}
		if c.spoke && age < u.shakingAge {
			continue
		}
		if best == nil || c.client.handshakes > best.client.handshakes ||
			c.client.handshakes == best.client.handshakes && best.spoke && !c.spoke {
			best = c
		}
	}
	return best
}

func newUnauthenticatedLimiter(max int, log *slog.Logger) *unauthenticatedLimiter {
	return &unauthenticatedLimiter{max: max, maxHandshakes: maxHandshakes, shakingAge: shakingAge, log: log,
		ended:   make(chan struct{}, 1),
		clients: make(map[netip.Prefix]*unauthenticatedClient), conns: make(map[net.Conn]*unauthenticatedConn)}
}

// add counts a new connection and reports whether its client may have it. It may drop an older one,
// and waits where the client is not to blame that there are too many handshakes.
func (u *unauthenticatedLimiter) add(c net.Conn) bool {
	c = belowTLS(c)
	remote, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // connections without an IP address are one client
	key := clientlimit.Key(remote.Addr())
	for {
		added, wait := u.tryAdd(c, key)
		if !wait {
			return added
		}
		select {
		case <-u.ended:
		case <-time.After(roomPause):
		}
	}
}

func (u *unauthenticatedLimiter) tryAdd(c net.Conn, key netip.Prefix) (added, wait bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	client := u.clients[key]
	if client == nil {
		client = &unauthenticatedClient{key: key}
	}
	if len(client.conns) >= u.max {
		u.refused.Add(1)
		if !client.logged {
			client.logged = true
			u.log.Warn("connections are closed: the client has too many that have not shown a credential",
				"client", key, "limit", u.max)
		}
		old := u.replaceableLocked(client.conns)
		if old == nil {
			return false, false
		}
		u.drop(old)
	}
	u.addLocked(&unauthenticatedConn{Conn: c, client: client, since: time.Now()})
	if len(u.handshakes) <= u.maxHandshakes {
		return true, false
	}
	old := u.replaceableLocked(u.handshakes)
	added = old != nil && old.client.handshakes >= client.handshakes
	wait = !added && client.handshakes <= max(1, u.maxHandshakes/u.shaking)
	if added {
		u.drop(old)
	} else {
		u.removeLocked(c)
	}
	if !wait {
		u.refused.Add(1)
		if time.Since(u.logged) >= time.Minute {
			u.logged = time.Now()
			u.log.Warn("connections are closed: too many of all clients do not finish their TLS handshake",
				"limit", u.maxHandshakes)
		}
	}
	return added, wait
}

func (u *unauthenticatedLimiter) addLocked(c *unauthenticatedConn) {
	u.clients[c.client.key] = c.client // it may have been removed with its last connection
	u.conns[c.Conn] = c
	c.client.conns = append(c.client.conns, c)
	u.handshakes = append(u.handshakes, c)
	if c.client.handshakes++; c.client.handshakes == 1 {
		u.shaking++
	}
}

// drop closes a connection without TLS's alert, for which it would wait.
func (u *unauthenticatedLimiter) drop(c *unauthenticatedConn) {
	if c.spoke {
		u.shakingAge = min(2*u.shakingAge, maxShakingAge)
	}
	u.removeLocked(c.Conn)
	_ = c.Close()
}

// spoke records that a connection has sent a ClientHello.
func (u *unauthenticatedLimiter) spoke(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if conn := u.conns[c]; conn != nil {
		conn.spoke = true
	}
}

func belowTLS(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}

// handshakeEnded ends the count of a connection's TLS handshake, which has succeeded or failed.
func (u *unauthenticatedLimiter) handshakeEnded(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if conn := u.conns[belowTLS(c)]; conn != nil {
		u.shakingAge = min(max(shakingAge, 2*time.Since(conn.since)), maxShakingAge)
		u.endHandshake(conn)
	}
	select {
	case u.ended <- struct{}{}:
	default:
	}
}

func (u *unauthenticatedLimiter) endHandshake(c *unauthenticatedConn) {
	i := slices.Index(u.handshakes, c)
	if i < 0 {
		return
	}
	u.handshakes = slices.Delete(u.handshakes, i, i+1)
	if c.client.handshakes--; c.client.handshakes == 0 {
		u.shaking--
	}
}

// remove ends the count of a connection that has shown a credential or has ended. A second call for
// the same connection does nothing.
func (u *unauthenticatedLimiter) remove(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeLocked(belowTLS(c))
}

func (u *unauthenticatedLimiter) removeLocked(c net.Conn) {
	conn := u.conns[c]
	if conn == nil {
		return
	}
	delete(u.conns, c)
	u.endHandshake(conn)
	client := conn.client
	client.conns = slices.DeleteFunc(client.conns, func(o *unauthenticatedConn) bool { return o == conn })
	if len(client.conns) == 0 {
		delete(u.clients, client.key)
	}
}
