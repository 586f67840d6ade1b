// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_ConformsToHTTP2 runs h2spec as a pod: every connection is a forwarder's stream.
func TestEdge_ConformsToHTTP2(t *testing.T) {
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "answer")
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relayToEnd(c, p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); relays.Wait() })
	framingtest.H2Spec(t, l.Addr(), false)
}

// relayToEnd copies both ways until both directions have ended.
func relayToEnd(c net.Conn, st *tunnel.Stream) {
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(st, c)
		_ = st.CloseWrite()
	})
	_, _ = io.Copy(c, st)
	_ = c.Close()
	up.Wait()
	_ = st.Close()
}
