// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pipelistener gives tests a net.Listener whose connections are pipes in memory, for
// servers in a synctest bubble. Tests come in; a listener goes out.
package pipelistener

import (
	"net"
	"sync"
)

// Listener accepts connections that a test offers. It is safe for concurrent use.
type Listener struct {
	offered chan any // net.Conn or error
	once    sync.Once
	closed  chan struct{}
}

// New returns a Listener.
func New() *Listener { return &Listener{offered: make(chan any), closed: make(chan struct{})} }

// Accept returns what Offer or Fail has offered, or net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case v := <-l.offered:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return v.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Offer waits until Accept takes the connection. It returns false when the listener is closed.
func (l *Listener) Offer(c net.Conn) bool { return l.offer(c) }

// Fail waits until Accept returns the error. It returns false when the listener is closed.
func (l *Listener) Fail(err error) bool { return l.offer(err) }

func (l *Listener) offer(v any) bool {
	select {
	case l.offered <- v:
		return true
	case <-l.closed:
		return false
	}
}

// Closed is closed by Close.
func (l *Listener) Closed() <-chan struct{} { return l.closed }

// Close may be called more than once.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns an empty address.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }
