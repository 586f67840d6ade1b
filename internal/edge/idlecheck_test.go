// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestIdleCheck_ClosedStaysClosed lets the transport close an idle connection and then read from it,
// as it does when a pool ends: the request that got the connection before does not wait for ever.
func TestIdleCheck_ClosedStaysClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) { // in which waiting for ever is a failure
		c := newIdleCheck()
		c.enter(reading)
		c.endRead()
		c.enter(closed)
		c.enter(reading)
		c.endRead()
		c.awaitIdle()
	})
}

// TestStaticTransport_NobodyGetsSecondAnswer lets clients that take turns without a pause call an
// upstream that answers every request twice.
func TestStaticTransport_NobodyGetsSecondAnswer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answerTwice(c)
		}
	}()
	e := newEdge(t, dialing(new(leaves)))
	address := &account.StaticAddress{Address: ln.Addr().String()}
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for n := range 1000 {
				path := fmt.Sprintf("/%d-%d", i, n)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.Address+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := roundTripStatic(e.upstreams.shared.address(e.upstreams, "ac-1"), req, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if body, err := io.ReadAll(res.Body); err != nil || string(body) != path {
					t.Errorf("%s was answered with %q, %v", path, body, err)
				}
				_ = res.Body.Close()
			}
		})
	}
	clients.Wait()
}

func answerTwice(c net.Conn) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.URL.Path), req.URL.Path)
		if _, err := io.WriteString(c, answer+answer); err != nil {
			return
		}
	}
}
