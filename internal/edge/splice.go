// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import "net"

// ReleaseNext ends the use of what Next has returned.
func (p *pendingConn) ReleaseNext() {
	if lender, ok := p.loadConn().(interface{ ReleaseNext() }); ok {
		lender.ReleaseNext()
	}
}

// Socket returns the connection that carries the bytes to and from the target unchanged, once it has
// answered; nil = there is none.
func (p *pendingConn) Socket() *net.TCPConn {
	if !p.established.Load() {
		return nil
	}
	if owner, ok := p.loadConn().(interface{ Socket() *net.TCPConn }); ok {
		return owner.Socket()
	}
	return nil
}

// CountSpliced counts bytes that the kernel has moved between sockets.
func (p *pendingConn) CountSpliced(read, written int) {
	p.record.Load().addBytes(written, read)
	if counter, ok := p.loadConn().(interface{ CountSpliced(read, written int) }); ok {
		counter.CountSpliced(read, written)
	}
}

// CountSpliced counts bytes that the kernel has moved between sockets.
func (s *agentStream) CountSpliced(read, written int) { s.upstreams.meter.CountBytes(written, read) }
