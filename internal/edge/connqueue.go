// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net"
	"sync"
)

// connQueue is the listener through which Serve passes connections to the HTTP server.
type connQueue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue() *connQueue {
	return &connQueue{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands a connection over and says whether it was taken.
func (q *connQueue) put(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.closed:
		return false
	}
}

// Accept returns the next connection; net.ErrClosed after Close.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and give.
func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr names the listener.
func (q *connQueue) Addr() net.Addr { return edgeAddr{} }

type edgeAddr struct{}

func (edgeAddr) Network() string { return "tunnel" }
func (edgeAddr) String() string  { return "edge" }
