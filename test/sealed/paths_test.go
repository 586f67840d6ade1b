// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sealed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/agent"
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
	to    agent.DialFunc // nil = a net.Dialer
	mu    sync.Mutex
	conns []*net.TCPConn
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := d.to
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, address)
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
func (r *rig) awaitParked(agents *dials, h tunnel.OpenHeader) {
	r.t.Helper()
	session := r.relay.Sessions.Live()
	servicetest.Eventually(r.t, "parked connections", func() bool {
		st, err := session.Open(servicetest.Context(r.t), h)
		must.Succeed(r.t, err)
		_ = st.WaitOpened(servicetest.Context(r.t))
		_ = st.Abort()
		pairs, _ := session.SealedStreams.Counts()
		return pairs > 0 && agents.hasParked()
	})
}

// TestMetrics_CountSealedStreamsByPath holds that the server's metrics show what carries sealed streams on
// both sides, and the raw connections.
func TestMetrics_CountSealedStreamsByPath(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inPairs = true
	id := r.serve("in-a", r.endpoint(upstream(t, digest("")), r.owner.Identity(databaseURL)))
	c := r.call(id, r.owner.Trust())
	_, err := c.Write([]byte("hello"))
	must.Succeed(t, errors.Join(err, c.CloseWrite()))
	_, err = io.ReadAll(c)
	must.Succeed(t, err)
	for _, pattern := range []string{`sealed_streams_total\{path="mux",role="agent"\} [1-9]`,
		`sealed_streams_total\{path="raw",role="agent"\} [1-9]`,
		`sealed_streams_total\{path="mux",role="forwarder"\} [1-9]`,
		`sealed_streams_total\{path="raw",role="forwarder"\} [1-9]`, `raw_connections\{state="parked"\} [1-9]`,
		`raw_connections\{state="in_use"\} 0`} {
		want := regexp.MustCompile("\nfairlead_server_" + pattern)
		servicetest.Eventually(t, pattern, func() bool { return want.MatchString(r.ScrapeMetrics()) })
	}
}
