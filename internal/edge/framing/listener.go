// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"net"
	"sync"
)

// Listener passes connections to an http.Server. It is safe for concurrent use.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewListener makes a Listener.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Put passes a connection to Accept. It returns false after Close.
func (q *Listener) Put(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.closed:
		return false
	}
}

// Accept returns the next connection; net.ErrClosed after Close.
func (q *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Put.
func (q *Listener) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr returns a name.
func (q *Listener) Addr() net.Addr { return edgeAddr{} }

type edgeAddr struct{}

func (edgeAddr) Network() string { return "tunnel" }
func (edgeAddr) String() string  { return "edge" }
