// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_DirectStreams checks what becomes of a request without a body, and of its stream, when the
// upstream does more or less than answer. Each connection of the upstream sends one of the answers, for
// every request the same.
func TestEdge_DirectStreams(t *testing.T) {
	t.Parallel()
	const (
		plain   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n"
	)
	for name, c := range map[string]struct {
		answer      string
		connections int // connections for two requests
		status      int
	}{
		"a whole answer":         {plain, 1, 200},
		"no body":                {"HTTP/1.1 204 No Content\r\n\r\n", 1, 204},
		"an interim answer":      {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain, 1, 200},
		"chunks and a trailer":   {chunked, 1, 200},
		"bytes behind an answer": {plain + strings.Replace(plain, "ok", "no", 1), 2, 200},
		"an end that is said":    {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 2, 200},
		"a header without end":   {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 300<<10), 2, 502},
		"another protocol":       {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n", 2, 502},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connections := make(chan struct{}, 10)
			p := servicetest.NewPathTo(t, servicetest.Start(t), servicetest.ServeTCP(t, func(conn *net.TCPConn) {
				connections <- struct{}{}
				for in := bufio.NewReader(conn); ; {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					_, _ = io.WriteString(conn, c.answer)
				}
			}))
			for range 2 {
				res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil)
				body := servicetest.ReadAll(t, res.Body)
				if res.StatusCode != c.status || c.status == 200 && body != "ok" ||
					c.status == 502 && res.Header.Get(account.CodeHeader) != string(account.CodeUpstreamBroken) {
					t.Errorf("status %d, %q", res.StatusCode, body)
				}
			}
			if n := len(connections); n < c.connections {
				t.Errorf("the upstream got %d connections", n)
			} else if n > c.connections && c.status != 502 { // such a request is sent again
				t.Errorf("the upstream got %d connections", n)
			}
		})
	}
}

// TestEdge_ClosesIdleDirectStreams checks that a kept connection of an upstream ends without an abort.
func TestEdge_ClosesIdleDirectStreams(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	p := servicetest.NewPathTo(t, servicetest.Start(t), servicetest.ServeTCP(t, func(conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		_, err := in.ReadByte()
		ended <- err
	}))
	began := time.Now()
	if res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil); res.StatusCode != 204 {
		t.Errorf("status %d", res.StatusCode)
	}
	if err := servicetest.Receive(t, ended, "the end of the connection"); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("it was kept for %v", took)
	}
}
