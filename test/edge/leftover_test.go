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
// connection that must end: the next client gets the answer to its own request, even if it comes
// in the very moment in which net/http has put the connection back and has not looked for more.
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
		"a second answer": {"GET", "", "", announced + stolen},
		"a longer body":   {"GET", "", "", announced + "more"},
		"a body of HEAD":  {"HEAD", "", "", announced},
		"a body of 204":   {"GET", "", "", "HTTP/1.1 204 No Content\r\n\r\n" + stolen},
		"a body of 304":   {"GET", "", "", "HTTP/1.1 304 Not Modified\r\n\r\n" + stolen},
		"after trailers": {"GET", "", "", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n" +
			"2\r\nok\r\n0\r\nT: 1\r\n\r\n" + stolen},
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
