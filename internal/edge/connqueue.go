// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net"
	"sync"
)

// handover is the listener through which Serve hands connections to the HTTP server.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands a connection over and says whether it was taken.
func (h *handover) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

// Accept returns the next connection; net.ErrClosed after Close.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and give.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr names the listener.
func (h *handover) Addr() net.Addr { return edgeAddr{} }

type edgeAddr struct{}

func (edgeAddr) Network() string { return "tunnel" }
func (edgeAddr) String() string  { return "edge" }
