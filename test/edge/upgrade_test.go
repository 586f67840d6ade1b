// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_DeliversBytesBehindAnUpgrade checks that a client need not wait for the 101: the
// upstream gets what the client sends right behind its request. Here the upstream answers once the
// client has sent all of that.
func TestEdge_DeliversBytesBehindAnUpgrade(t *testing.T) {
	t.Parallel()
	sent := map[string]chan struct{}{}
	echo := func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		<-sent[r.URL.Path]
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, rw)
	}
	w := servicetest.StartPublic(t)
	w.Bind("public", "https://app.example.com", echo)
	p := servicetest.NewPathTo(t, w.Server, servicetest.ServeHTTP(t, echo),
		func(b *tunnel.Bind) { b.HostMode = "rewrite" })
	for binding, dial := range map[string]func() net.Conn{
		"kubernetes": func() net.Conn { return p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound)) },
		"public": func() net.Conn {
			c, err := tls.Dial("tcp", w.Addrs.HTTPS.String(),
				&tls.Config{ServerName: "app.example.com", RootCAs: w.Roots})
			must.Succeed(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
	} {
		for _, size := range []int{1, 1 << 10, 64 << 10, 128 << 10} {
			path := fmt.Sprint("/", binding, "/", size)
			sent[path] = make(chan struct{})
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				deliverEarly(t, dial(), path, strings.Repeat("\x00\n", size/2)+"x", sent[path])
			})
		}
	}
}

func deliverEarly(t *testing.T, c net.Conn, path, early string, sent chan<- struct{}) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(servicetest.MaxWait))
	_, err := fmt.Fprintf(c,
		"GET %s HTTP/1.1\r\nHost: app.example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n%s",
		path, early)
	if close(sent); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil) //nolint:bodyclose // 101 has none
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer %v %v", res, err)
	}
	got := make([]byte, len(early))
	if n, err := io.ReadFull(in, got); err != nil || string(got) != early {
		t.Errorf("%d of %d bytes came back, equal %v, %v", n, len(early), string(got[:n]) == early[:n], err)
	}
}

// TestEdge_PassesUpgradesOfAnyProtocol plays clients of Docker (attach and exec), of kubectl exec and
// of a protocol without a name: heads arrive as they were sent, bodies before the 101, and bytes of any
// kind go both ways behind it.
func TestEdge_PassesUpgradesOfAnyProtocol(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must.Succeed(t, err)
		c, rw, err := http.NewResponseController(w).Hijack()
		must.Succeed(t, err)
		defer c.Close()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 UPGRADED\r\nConnection: %s\r\nUpgrade: %s\r\n"+
			"Content-Type: application/vnd.docker.raw-stream\r\nX-Stream-Protocol-Version: %s\r\n\r\n%s",
			r.Header.Get("Connection"), r.Header.Get("Upgrade"), r.Header.Get("X-Stream-Protocol-Version"), body)
		_, _ = io.Copy(c, rw)
		_, _ = io.WriteString(c, "end")
	})
	for name, c := range map[string]struct{ head, body, upgrade string }{
		"docker exec": {"POST /exec/abc/start HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 13\r\n" +
			"Connection: Upgrade\r\nUpgrade: tcp\r\n", `{"Tty": true}`, "tcp"},
		"docker attach": {"POST /containers/abc/attach?stream=1 HTTP/1.1\r\nContent-Length: 0\r\n" +
			"Connection: Upgrade\r\nUpgrade: tcp\r\n", "", "tcp"},
		"kubectl exec": {"POST /api/v1/namespaces/a/pods/b/exec?command=sh&stdin=true HTTP/1.1\r\n" +
			"Content-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
			"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n", "",
			"SPDY/3.1"},
		"another protocol": {"GET /foo HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: foo/2\r\n", "", "foo/2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
			_, _ = io.WriteString(st, c.head+"Host: hello.demo\r\n\r\n"+c.body)
			in := bufio.NewReader(st)
			res, err := http.ReadResponse(in, nil) //nolint:bodyclose // 101 has none
			if err != nil || res.StatusCode != http.StatusSwitchingProtocols ||
				res.Header.Get("Upgrade") != c.upgrade ||
				res.Header.Get("Content-Type") != "application/vnd.docker.raw-stream" ||
				strings.Contains(c.head, "v4.channel") != (res.Header.Get("X-Stream-Protocol-Version") != "") {
				t.Fatalf("answer %+v %v", res, err)
			}
			frame := "\x80\x03\x00\x01\r\n\r\n\x00HTTP/1.1 200 OK\r\n\xff"
			_, _ = io.WriteString(st, frame)
			must.Succeed(t, st.CloseWrite())
			if got := servicetest.ReadAll(t, in); got != c.body+frame+"end" {
				t.Errorf("behind the 101 came %q", got)
			}
		})
	}
}
