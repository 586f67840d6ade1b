// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"io"
	"net"
	"testing"
	"time"
)

// onceConn is a connection on which one head arrives in one piece.
type onceConn struct {
	net.Conn
	head []byte
}

func (c *onceConn) SetReadDeadline(time.Time) error { return nil }

func (c *onceConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.head)
	c.head = c.head[n:]
	return n, nil
}

// BenchmarkConn_FirstHead measures what the first request of a connection costs.
func BenchmarkConn_FirstHead(b *testing.B) {
	head := []byte("GET /some/path HTTP/1.1\r\nHost: api.demo\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n")
	buffer := make([]byte, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		c := New(&onceConn{head: head},
			Options{Protocol: HTTP1OrHTTP2, StartTimeout: time.Minute, HeadTimeout: HeadTimeout})
		if n, err := c.Read(buffer); err != nil || n != len(head) {
			b.Fatal(n, err)
		}
	}
}
