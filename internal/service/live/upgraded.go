// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"bytes"
	"io"
	"net"
)

// upgradedConn is the client's connection after an upgrade. Its reads and writes fail after the
// session's end, and abort the request.
type upgradedConn struct {
	net.Conn
	guard *guard
}

// halfCloser is a connection with half-close.
type halfCloser interface{ CloseWrite() error }

// halfCloseConn is an upgradedConn with half-close.
type halfCloseConn struct {
	*upgradedConn
	half halfCloser
}

// newUpgradedConn returns c with checks; with half-close if c has it.
func newUpgradedConn(c net.Conn, g *guard) net.Conn {
	up := &upgradedConn{c, g}
	if half, ok := c.(halfCloser); ok {
		return &halfCloseConn{up, half}
	}
	return up
}

// Read reads from the client. It drops what comes after the session's end.
func (c *upgradedConn) Read(p []byte) (int, error) {
	n, err := c.guard.read(c.Conn, p)
	if err != nil {
		_ = c.guard.check()
	}
	return n, err
}

// Write writes to the client.
func (c *upgradedConn) Write(p []byte) (int, error) { return c.guard.write(c.Conn, p) }

// Close ends the connection. After the session's end it resets it, so that what was sent does not
// look complete.
func (c *upgradedConn) Close() error {
	if !c.guard.mayServe() && c.guard.client != nil {
		c.guard.client.Abort()
	}
	return c.Conn.Close()
}

// CloseWrite half-closes the connection. It fails after the session's end: to the client, what it
// got must not look complete.
func (c *halfCloseConn) CloseWrite() error {
	if err := c.guard.check(); err != nil {
		return err
	}
	return c.half.CloseWrite()
}

// guardBuffers makes the buffers of a connection, nil if it has none, read and write up. What the
// HTTP server has read ahead stays buffered.
func guardBuffers(buffered *bufio.ReadWriter, up net.Conn) *bufio.ReadWriter {
	if buffered == nil {
		return nil
	}
	ahead := make([]byte, buffered.Reader.Buffered())
	_, _ = io.ReadFull(buffered.Reader, ahead)
	buffered.Reader.Reset(io.MultiReader(bytes.NewReader(ahead), up))
	_, _ = buffered.Peek(len(ahead))
	buffered.Writer.Reset(up) // net/http has written nothing to it
	return buffered
}
