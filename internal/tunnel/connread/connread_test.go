// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package connread_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

// tcpPair returns the two ends of a TCP connection.
func tcpPair(t *testing.T) (reader, writer *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	w, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r.(*net.TCPConn), w.(*net.TCPConn)
}

// waitAvailable calls Available until it is ready.
func waitAvailable(t *testing.T, c *net.TCPConn, b []byte) (n int, err error) {
	t.Helper()
	raw, rawErr := c.SyscallConn()
	if rawErr != nil {
		t.Fatal(rawErr)
	}
	if rawErr = raw.Read(func(fd uintptr) bool {
		var ready bool
		n, ready, err = connread.Available(fd, b)
		return ready
	}); rawErr != nil {
		t.Fatal(rawErr)
	}
	return n, err
}

func TestAvailable_ReadsToEndOfInput(t *testing.T) {
	t.Parallel()
	reader, writer := tcpPair(t)
	raw, err := reader.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if n, ready, err := connread.Available(fd, make([]byte, 8)); n != 0 || ready || err != nil {
			t.Errorf("without bytes: %d, ready %t, %v", n, ready, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(writer, "hello")
	_ = writer.CloseWrite()
	got, b := "", make([]byte, 2)
	for {
		n, err := waitAvailable(t, reader, b)
		got += string(b[:n])
		if err != nil {
			if n != 0 || !connread.IsEOF(err) {
				t.Errorf("the end of input: %d bytes and %v", n, err)
			}
			break
		}
		if n == 0 {
			t.Fatal("ready without a byte or an error")
		}
	}
	if got != "hello" {
		t.Errorf("read %q", got)
	}
}

func TestAvailable_ReturnsReset(t *testing.T) {
	t.Parallel()
	reader, writer := tcpPair(t)
	_ = writer.SetLinger(0)
	_ = writer.Close()
	if n, err := waitAvailable(t, reader, make([]byte, 8)); n != 0 || !errors.Is(err, syscall.ECONNRESET) ||
		connread.IsEOF(err) {
		t.Errorf("a connection that was reset: %d bytes and %v", n, err)
	}
}

func TestIsEOF_OnlyBareEOF(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nil: false, io.EOF: true, io.ErrUnexpectedEOF: false, fmt.Errorf("reset: %w", io.EOF): false,
	} {
		if got := connread.IsEOF(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
