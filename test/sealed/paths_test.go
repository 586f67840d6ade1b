// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sealed_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

const (
	inPairs    = "in pairs"
	withSpares = "with spares"
)

// overBothPaths runs a test with sealed connections in the multiplexer, with connections of their own from
// the first one on, and over both with spares.
func overBothPaths(t *testing.T, test func(*testing.T)) {
	t.Helper()
	t.Parallel()
	for _, path := range []string{"in the multiplexer", inPairs, withSpares} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// runs reports whether the test is one of overBothPaths for the path.
func runs(t *testing.T, path string) bool {
	return strings.Contains(t.Name()+"/", "/"+strings.ReplaceAll(path, " ", "_")+"/")
}

// dials are the connections that an agent has made with its server.
type dials struct {
	mu    sync.Mutex
	conns []*net.TCPConn
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.conns = append(d.conns, conn.(*net.TCPConn))
	}
	return conn, err
}

// hasParked reports whether one of the connections is parked: the server has sent one byte.
func (d *dials) hasParked() (yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		raw, err := c.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			yes = yes || err == nil && info.Bytes_received == 1 && info.State == unix.BPF_TCP_ESTABLISHED
		})
	}
	return yes
}

// awaitParked opens sealed streams, and aborts them, until both ends have parked connections.
func (r *rig) awaitParked(agent *dials, h tunnel.OpenHeader) {
	r.t.Helper()
	session := r.relay.Sessions.Live()
	servicetest.Eventually(r.t, "parked connections", func() bool {
		st, err := session.Open(servicetest.Context(r.t), h)
		must.Succeed(r.t, err)
		_ = st.WaitOpened(servicetest.Context(r.t))
		_ = st.Abort()
		pairs, _ := session.SealedStreams.Counts()
		return pairs > 0 && agent.hasParked()
	})
}
