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
