// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

// A raw connection that a client parks begins with ticketByte, which no TLS record does, and a ticket.
// The server answers parkedByte, or closes it.
const (
	ticketByte = 0xf1
	parkedByte = 0x01
	ticketSize = 32

	ticketLifetime = 10 * time.Second
	parkTimeout    = 5 * time.Second // for the ticket, and for the answer
)

// errTicket is the same for every ticket that is not accepted.
var errTicket = errors.New("the ticket is none, was used or is too old")

// tickets are the tickets of a server's sessions. They name nothing and count once. The zero value is
// ready.
type tickets struct {
	mu     sync.Mutex
	issued map[[sha256.Size]byte]*ticket // issued has the tickets by their SHA-256.
	lastID uint64
}

type ticket struct {
	pool   *pairPool // pool is that of the session.
	id     uint64
	expiry *time.Timer
}

// issue returns a ticket for a connection of the session that has the pool.
func (t *tickets) issue(pool *pairPool) (*ticketed, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pool.tickets+pool.count(time.Time{}) >= maxParked {
		return nil, &Error{Code: CodeLimit, Msg: fmt.Sprintf("a session parks at most %d connections", maxParked)}
	}
	if !pool.reserve() {
		return nil, &Error{Code: CodeLimit, Msg: "the server has no room for further connections of sealed streams"}
	}
	if t.issued == nil {
		t.issued = make(map[[sha256.Size]byte]*ticket)
	}
	secret := make([]byte, ticketSize)
	_, _ = rand.Read(secret) // never fails
	t.lastID++
	hash := sha256.Sum256(secret)
	t.issued[hash] = &ticket{pool, t.lastID, time.AfterFunc(ticketLifetime, func() {
		if t.remove(hash) != nil {
			pool.release()
		}
	})}
	pool.tickets++
	return &ticketed{Ticket: secret, PairID: t.lastID}, nil
}

// remove removes and returns a ticket; nil = there is none with this hash.
func (t *tickets) remove(hash [sha256.Size]byte) *ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.issued[hash]
	if found != nil {
		delete(t.issued, hash)
		found.expiry.Stop()
		found.pool.tickets--
	}
	return found
}

// redeem returns the connection, to be parked, for which a ticket was issued.
func (t *tickets) redeem(secret []byte) (*parkedConn, error) {
	found := t.remove(sha256.Sum256(secret))
	if found == nil {
		return nil, errTicket
	}
	if c := found.pool.expect(found.id); c != nil {
		return c, nil
	}
	found.pool.release()
	return nil, errTicket // the session has ended
}

// PresentsTicket waits for the first byte of a connection that TuneConn has returned, without reading
// it, and reports whether a ticket follows it: then the connection is one for ServeTicket, without TLS.
func (s *Server) PresentsTicket(ctx context.Context, c net.Conn) bool {
	tuned, ok := c.(*tunedConn)
	if !ok || tuned.raw == nil || !canSplice {
		return false
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var first byte
	err := tuned.raw.Read(func(fd uintptr) (ready bool) {
		first, ready, _ = connread.Peek(fd) // an error comes again when the byte is read
		return ready
	})
	return err == nil && first == ticketByte
}

// ServeTicket parks a connection that presents a ticket of one of the server's sessions within
// parkTimeout, while ctx lasts, and else closes it. It does not wait for the end of one that is parked.
func (s *Server) ServeTicket(ctx context.Context, c net.Conn) error {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	var b [1 + ticketSize]byte
	_ = c.SetReadDeadline(time.Now().Add(parkTimeout))
	tuned := c.(*tunedConn)
	_, err := io.ReadFull(tuned.Conn, b[:])
	_ = c.SetReadDeadline(time.Time{})
	var parked *parkedConn
	if err == nil {
		parked, err = s.tickets.redeem(b[1:])
	}
	if err != nil {
		_ = c.Close()
		return fmt.Errorf("reading a ticket: %w", err)
	}
	return parked.park(tuned, func() error {
		_, err := c.Write([]byte{parkedByte}) // before the pool lends the connection
		return err
	})
}
