// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_NobodyGetsWhatAnotherLeft lets an upstream, or the client before, leave something on a
// connection that must end: the next client gets the answer to its own request. A second answer on
// a connection that may be kept is not here: net/http drops the connection when it notices, which
// a request in the same moment can forestall.
func TestEdge_NobodyGetsWhatAnotherLeft(t *testing.T) {
	t.Parallel()
	const stolen = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"
	const announced = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	smuggled := strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", 4000)
	for name, c := range map[string]struct{ method, header, body, answer string }{
		"a late 100": {"POST", "Expect: 100-continue\r\n", "ab",
			announced + "HTTP/1.1 100 Continue\r\n\r\n" + stolen},
		"an early refusal": {"POST", "Expect: 100-continue\r\n", smuggled,
			"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n"},
		"an upgrade unasked": {"GET", "", "",
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + stolen},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := servicetest.NewPathTo(t, servicetest.Start(t), servicetest.ServeTCP(t, func(conn *net.TCPConn) {
				for r := bufio.NewReader(conn); ; {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.URL.Path),
						req.URL.Path)
					if req.URL.Path == "/leaves" {
						answer = c.answer
					} else {
						_, _ = io.Copy(io.Discard, req.Body)
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			}))
			next := &http.Client{Transport: p.Forwarder.Transport(p.Bound), Timeout: servicetest.MaxWait}
			for i := range 40 {
				st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
				_, _ = fmt.Fprintf(st, "%s /leaves HTTP/1.1\r\nHost: hello.demo\r\n%sContent-Length: %d\r\n\r\n%s",
					c.method, c.header, len(c.body), c.body)
				if res, err := http.ReadResponse(bufio.NewReader(st), &http.Request{Method: c.method}); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
				}
				checkAnswer(t, next, fmt.Sprintf("http://hello.demo/own-%d", i), "", fmt.Sprintf("200 /own-%d", i))
				_ = st.Close()
			}
		})
	}
}
