// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-yamux/v5"
)

const (
	frameHeader   = 12 // of a yamux frame
	helloBudget   = helloLimit + 4<<10
	helloMaxReads = 128
)

// muxConfig returns the multiplexer's settings; both ends use the same.
func muxConfig(log *slog.Logger) *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:           4096,
		PingBacklog:             32,
		EnableKeepAlive:         true,
		KeepAliveInterval:       15 * time.Second,
		MeasureRTTInterval:      30 * time.Second,
		ConnectionWriteTimeout:  30 * time.Second, // also how long a ping may stay unanswered
		MaxIncomingStreams:      65536,
		InitialStreamWindowSize: 1 << 20,
		MaxStreamWindowSize:     16 << 20,
		LogOutput:               debugWriter{log},
		ReadBufSize:             0, // tunedConn reads ahead
		MaxMessageSize:          64 << 10,
	}
}

// debugWriter logs the multiplexer's remarks.
type debugWriter struct{ log *slog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	if w.log.Enabled(context.Background(), slog.LevelDebug) {
		w.log.Debug("multiplexer", "remark", strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

var errTooEager = errors.New("the peer sent too much before it was welcome")

// muxConn is the connection under the multiplexer. It counts what waits to be sent, and it holds a peer that has not said who it is to a
// budget of bytes and reads, so that it cannot fill the receive windows of thousands of streams.
type muxConn struct {
	net.Conn
	queued  atomic.Int64 // payload bytes handed to the multiplexer and not yet written
	trusted atomic.Bool
	busy    busyMark
	session atomic.Pointer[Session] // that learns when the connection becomes busy

	in, out gauge // of the multiplexer's reader, of its writer
	budget  int   // bytes left until trusted; only the multiplexer's reader uses budget and reads
	reads   int
}

func (c *muxConn) Read(p []byte) (int, error) {
	if c.trusted.Load() {
		n, err := c.Conn.Read(p)
		if c.in.add(n) {
			c.becameBusy()
		}
		return n, err
	}
	if c.budget <= 0 || c.reads >= helloMaxReads {
		return 0, errTooEager
	}
	n, err := c.Conn.Read(p[:min(len(p), c.budget)])
	c.budget -= n
	c.reads++
	return n, err
}

// Write gets whole frames: the multiplexer has one writer.
func (c *muxConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n <= frameHeader {
		return n, err
	}
	behind := c.queued.Add(-int64(n - frameHeader))
	if bulk := c.out.add(n); bulk || behind >= backlogMark {
		c.becameBusy()
	}
	return n, err
}

func (c *muxConn) becameBusy() {
	now := time.Now()
	if s := c.session.Load(); c.busy.set(now) && s != nil {
		s.becameBusy(now)
	}
}

// lossy says whether packets are lost and slow the connection down.
func (c *muxConn) lossy() bool {
	if b, ok := c.Conn.(*BatchConn); ok && b.below != nil {
		return lossy(b.below.Conn)
	}
	return false
}

// writeCounted writes to a stream of the connection and accounts for it.
func (c *muxConn) writeCounted(w io.Writer, p []byte) (int, error) {
	c.queued.Add(int64(len(p)))
	n, err := w.Write(p)
	if n < len(p) {
		c.queued.Add(-int64(len(p) - n))
	}
	return n, err
}
