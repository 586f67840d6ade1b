// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// countedConn counts what reaches the socket.
type countedConn struct {
	*net.TCPConn
	writes, written atomic.Int64
	fail            atomic.Bool
}

func (c *countedConn) Write(p []byte) (int, error) {
	if c.fail.Load() {
		return 0, errors.New("broken cable")
	}
	c.writes.Add(1)
	c.written.Add(int64(len(p)))
	return c.TCPConn.Write(p)
}

// tlsPair returns both ends of a TLS connection over loopback: the client's writes are counted.
func tlsPair(t *testing.T) (*BatchConn, *countedConn, *tls.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := authority()
	server := tls.Server(TuneConn(accepted),
		&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	go func() { _ = server.HandshakeContext(t.Context()) }()
	counted := &countedConn{TCPConn: raw.(*net.TCPConn)}
	cfg := clientTrust()
	cfg.DynamicRecordSizingDisabled = true
	client := tls.Client(TuneConn(counted), cfg)
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = raw.Close(), accepted.Close() })
	return Batch(client), counted, server
}

func TestBatchConn_WritesFourRecordsAtOnce(t *testing.T) {
	t.Parallel()
	client, counted, server := tlsPair(t)
	go func() { _, _ = io.Copy(io.Discard, server) }()
	before, bytes := counted.writes.Load(), counted.written.Load()
	if n, err := client.Write(make([]byte, 64<<10)); n != 64<<10 || err != nil {
		t.Fatal(n, err)
	}
	if n := counted.writes.Load() - before; n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	if n := counted.written.Load() - bytes; n != 4*recordSize {
		t.Errorf("%d bytes, want %d: a record's size is not what it was", n, 4*recordSize)
	}
}

func TestBatchConn_KeepsOrder(t *testing.T) {
	t.Parallel()
	client, _, server := tlsPair(t)
	var sent bytes.Buffer
	random := rand.NewChaCha8([32]byte{1})
	go func() {
		for _, size := range []int{1, 16384, 16385, 65536, 3, 1 << 20, 65537, 0, 100_000} {
			b := make([]byte, size)
			_, _ = random.Read(b)
			sent.Write(b)
			if n, err := client.Write(b); n != size || err != nil {
				t.Errorf("wrote %d of %d: %v", n, size, err)
			}
		}
		_ = client.CloseWrite()
	}()
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, sent.Bytes()) {
		t.Errorf("received %d bytes, %v, or other ones than were sent", len(got), err)
	}
}

func TestTunedConn_FailedFlushIsPermanent(t *testing.T) {
	t.Parallel()
	client, counted, _ := tlsPair(t)
	counted.fail.Store(true)
	if n, err := client.Write(make([]byte, 64<<10)); err == nil {
		t.Fatalf("wrote %d bytes to a broken cable", n)
	}
	counted.fail.Store(false)
	if _, err := client.Write([]byte("x")); err == nil {
		t.Error("wrote on after bytes were lost")
	}
}

func TestTunedConn_ReadAheadReturnsBuffer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	c := TuneConn(near).(*tunedConn)
	_, _ = io.WriteString(far, "abcdef")
	_ = far.Close()
	small := make([]byte, 4)
	if n, err := io.ReadFull(c, small); n != 4 || err != nil || c.in == nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	if n, err := c.Read(small); n != 2 || err != nil || c.in != nil {
		t.Fatalf("read %d bytes, %v; an empty connection holds a buffer: %v", n, err, c.in != nil)
	}
	if _, err := c.Read(small); !errors.Is(err, io.EOF) {
		t.Fatalf("read %v at the end", err)
	}
	_ = near.Close()
	if _, err := c.Read(small); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("read %v after Close", err)
	}
	if c.NetConn() != near {
		t.Error("the raw connection is lost")
	}
}

func TestSession_NewStreamsAvoidBusyConnection(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	s := h.startClient(ClientConfig{}).awaitSession(t)
	awaitConnections(t, 2, s)
	busy := open(t, s).link
	busy.conn.busy.set(time.Now().Add(time.Hour))
	for range 5 {
		if open(t, s).link == busy {
			t.Error("a stream went to the busy connection")
		}
	}
}
