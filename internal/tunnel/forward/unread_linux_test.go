// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

func TestHasUnreadInput_ConsumesNothing(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	accept := func() (near, far net.Conn) {
		if far, err = net.Dial("tcp", ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if near, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		return near, far
	}
	near, far := accept()
	if hasUnreadInput(near) {
		t.Error("a silent client has sent something")
	}
	_, _ = io.WriteString(far, "x")
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = near.SetReadDeadline(time.Now().Add(time.Minute))
	// asked again when something can be read
	if err := raw.Read(func(uintptr) bool { return hasUnreadInput(near) }); err != nil {
		t.Fatal("what was sent is not seen:", err)
	}
	buf := make([]byte, 2)
	if n, err := near.Read(buf); n != 1 || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	near, far = accept()
	_ = far.(*net.TCPConn).SetLinger(0)
	_ = far.Close()
	if hasUnreadInput(near) {
		t.Error("a client that broke off has sent something")
	}
	if _, err := near.Read(buf); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the reset is lost: %v", err)
	}
}
