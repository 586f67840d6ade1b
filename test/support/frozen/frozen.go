// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package frozen gives tests connections of a process that can be stopped as SIGSTOP stops it: it
// neither reads nor writes, and its connections stay open. Tests come in with a net.Conn, which
// goes out wrapped.
package frozen

import (
	"context"
	"net"
	"sync"
)

// Process is a process that can be stopped. The zero value runs. It is safe for concurrent use.
type Process struct {
	mu      sync.Mutex
	stopped chan struct{} // closed by Continue; nil while the process runs
}

// Stop stops the process until Continue: what is sent to it waits, and what it sends.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == nil {
		p.stopped = make(chan struct{})
	}
}

// Continue lets the process go on.
func (p *Process) Continue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped != nil {
		close(p.stopped)
		p.stopped = nil
	}
}

func (p *Process) wait() {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// Conn returns c as the process has it.
func (p *Process) Conn(c net.Conn) net.Conn { return &conn{c, p} }

// Dial is the DialContext of the process.
func (p *Process) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	p.wait()
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return p.Conn(c), nil
}

type conn struct {
	net.Conn
	process *Process
}

// Read returns what came once the process runs.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.process.wait()
	return n, err
}

// Write waits until the process runs.
func (c *conn) Write(p []byte) (int, error) {
	c.process.wait()
	return c.Conn.Write(p)
}
