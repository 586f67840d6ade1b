// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestClient_AbortResetsConnection checks that Abort resets a connection of HTTP/1, also below TLS
// and a PROXY header. One of HTTP/2 cannot be aborted: it carries other requests.
func TestClient_AbortResetsConnection(t *testing.T) {
	t.Parallel()
	for name, proxied := range map[string]bool{"direct": false, "proxied": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			w := newTestServer(t, func(o *Options) {
				if proxied {
					o.ProxyProtocol, o.TrustedProxies = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
				}
				o.Handler = serveFunc(func(rw http.ResponseWriter, r *http.Request, _ *account.Endpoint, c Client) {
					if r.ProtoMajor == 2 {
						_, _ = io.WriteString(rw,
							map[bool]string{true: "stays", false: "can be severed"}[c.Aborter == nil])
						return
					}
					_, _ = io.WriteString(rw, "beginning")
					_ = http.NewResponseController(rw).Flush()
					c.Aborter.Abort()
					c.Aborter.Abort()
					<-r.Context().Done() // the server notices
					_, err := rw.Write(make([]byte, 8<<10))
					ended <- err
				})
			})
			if !proxied {
				if res, body := w.get("https://app.example.com/"); res.ProtoMajor != 2 || body != "stays" {
					t.Errorf("over %s: %q", res.Proto, body)
				}
			}
			for _, secure := range []bool{false, true} {
				c, host := w.dial(w.http), "plain.example.com"
				if secure {
					c, host = w.dial(w.https), "app.example.com"
				}
				if proxied {
					_, _ = io.WriteString(c, "PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n")
				}
				if secure {
					c = w.handshake(c, host)
				}
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
				_, err := io.Copy(io.Discard, bufio.NewReader(c))
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("secure=%t: the client sees %v, not a reset", secure, err)
				}
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("secure=%t: a write afterwards: %v", secure, err)
				}
			}
		})
	}
}
