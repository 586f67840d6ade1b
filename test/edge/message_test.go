// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_PassesUserAgentsAndTrailers sends two User-Agent lines, and trailers that no header
// announces.
func TestEdge_PassesUserAgentsAndTrailers(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	p := servicetest.NewPath(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r
	})
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	framingtest.Expect(t, st, "POST / HTTP/1.1\r\nHost: hello.demo\r\nUser-Agent: a\r\nUser-Agent: b\r\n"+
		"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+
		"1\r\nx\r\n0\r\nX-Sum: 1\r\nX-Real-IP: 6.6.6.6\r\nFairlead-User: eve\r\n\r\n", "200")
	r := servicetest.Receive(t, got, "request")
	if agents := r.Header["User-Agent"]; !reflect.DeepEqual(agents, []string{"a", "b"}) {
		t.Errorf("User-Agent %q", agents)
	}
	if want := (http.Header{"X-Sum": {"1"}}); !reflect.DeepEqual(r.Trailer, want) {
		t.Errorf("trailers %v, want %v", r.Trailer, want)
	}
}

// TestEdge_ExplainsInvalidAnswers checks the page for answers that cannot be passed on.
func TestEdge_ExplainsInvalidAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"099 Odd\r\nContent-Length: 0":                              "has the status 099",
		"200 OK\r\nContent-Length: 0\r\nX Y: z":                     "name HTTP does not allow",
		"200 OK\r\nContent-Length: 0\r\nX-Sum : z":                  "name HTTP does not allow",
		"200 OK\r\nX-Long: " + strings.Repeat("x", 300<<10):         "has a header of more than 256 KiB",
		"200 OK\r\nContent-Length: 0\r\nX-100%: z\r\nX 100%s: five": "X 100%s",
	} {
		up := servicetest.ServeTCP(t, func(c *net.TCPConn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = fmt.Fprintf(c, "HTTP/1.1 %s\r\n\r\n", answer)
			}
		})
		p := servicetest.NewPathTo(t, servicetest.Start(t), up)
		res := p.Forwarder.Do(p.Transport, "POST", "http://hello.demo/", nil, nil)
		if body := servicetest.ReadAll(t, res.Body); res.StatusCode != 502 || !strings.Contains(body, want) {
			t.Errorf("%.60q: %d %q", answer, res.StatusCode, body)
		}
	}
}

// TestEdge_NamesCodeOfRefusedHead checks that a head that is refused before it is parsed is answered
// as other errors are.
func TestEdge_NamesCodeOfRefusedHead(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(http.ResponseWriter, *http.Request) {})
	for head, want := range map[string]account.Code{
		"GET /100% HTTP/1.1\r\nHost: hello.demo": account.CodeBadRequest,
		"GET / HTTP/1.1\r\nHost : hello.demo":    account.CodeBadRequest,
		"x":                                      account.CodeBadRequest,
		"GET a HTTP/1.1\r\nHost: hello.demo":     account.CodeBadRequest,
		"CONNECT [::1 HTTP/1.1\r\nHost: a.demo":  account.CodeBadRequest,
		"GET / HTTP/1.1\r\nHost: hello.demo\r\nX: " + strings.Repeat("x", 64<<10): account.CodeHeaderTooLarge,
	} {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_, _ = io.WriteString(st, head+"\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(st), nil)
		must.Succeed(t, err)
		if body := servicetest.ReadAll(t, res.Body); res.StatusCode != want.Status() || !res.Close ||
			res.Header.Get(account.CodeHeader) != string(want) || !strings.Contains(body, "The request's head") {
			t.Errorf("%.60q: %d %v %q", head, res.StatusCode, res.Header, body)
		}
		_ = st.Close()
	}
}
