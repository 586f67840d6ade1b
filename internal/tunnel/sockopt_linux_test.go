// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// TestTuneTCP_LimitsUnsentBytes checks that unsent data in the kernel, which delays every small
// answer, does not take longer than about half a second on a connection of 2 Mbit/s.
func TestTuneTCP_LimitsUnsentBytes(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	tcp, ok := conn.(*net.TCPConn) // without a peer, so with none nearby
	if !ok {
		t.Fatalf("a %T", conn)
	}
	tuneTCP(tcp)
	mark := 0
	withSocket(tcp, func(fd int) { mark, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) })
	if err != nil || mark <= 0 || mark > 128<<10 {
		t.Errorf("the kernel takes %d bytes beyond what it may send, want 128 KiB at most; %v", mark, err)
	}
}

// TestPair_BearsSlowReader holds that a peer which takes no bytes for long keeps its connection: the
// kernel would end it after TCP_USER_TIMEOUT although the peer answers.
func TestPair_BearsSlowReader(t *testing.T) {
	t.Parallel()
	near, _ := tcpEnds(t)
	conn := TuneConn(near).(*tunedConn)
	timeout := func() (ms int) {
		withSocket(near, func(fd int) { ms, _ = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) })
		return ms
	}
	before := timeout()
	newPair(&link{ctx: t.Context(), pairs: newTestPool(clientParked)}, &mux.Stream{}, conn)
	if after := timeout(); before == 0 || after != 0 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, before %d", after, before)
	}
}
