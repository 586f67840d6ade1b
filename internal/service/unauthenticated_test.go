// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// dialTLS opens a connection to the service as a browser or curl would; nil when it is closed at
// once.
func (r *testServer) dialTLS() *tls.Conn {
	r.t.Helper()
	config, err := trust.Options{CASHA256: r.addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		r.t.Fatal(err)
	}
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"http/1.1"}
	raw, err := (&net.Dialer{}).DialContext(testContext(r.t), "tcp", r.addrs.Service.String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = raw.Close() })
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(testContext(r.t)); err != nil {
		var notTrusted *tls.CertificateVerificationError
		if errors.As(err, &notTrusted) {
			r.t.Fatal(err)
		}
		return nil
	}
	return c
}

// statusOf sends a request over the connection and returns the status; the connection stays open.
func (r *testServer) statusOf(c *tls.Conn, key string) int {
	r.t.Helper()
	_, err := fmt.Fprintf(c,
		"GET /endpoints HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nService-Version: 2\r\n\r\n", key)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

func TestServer_LimitsUnauthenticatedConnections(t *testing.T) {
	t.Parallel()
	const most = 4
	r := startServer(t, func(o *Options) { o.maxUnauthenticated = most })
	for range most { // two connections each, which have shown a credential and do not count
		r.openSession(r.authtoken)
	}
	wrong := account.NewSecret(account.APIKeyPrefix)
	var in []*tls.Conn
	for len(in) < most {
		eventually(t, "there is room while there are fewer", func() bool {
			c := r.dialTLS()
			if c != nil {
				in = append(in, c)
			}
			return c != nil
		})
		if status := r.statusOf(in[len(in)-1], wrong); status != http.StatusUnauthorized {
			t.Fatalf("a wrong key: status %d", status)
		}
	}
	if r.dialTLS() != nil {
		t.Error("one more than the limit came in")
	}
	if status := r.statusOf(in[0], wrong); status != http.StatusUnauthorized { // those who are in are served
		t.Errorf("status %d", status)
	}
	if status := r.statusOf(in[0], r.apiKey); status != http.StatusOK {
		t.Fatalf("the right key: status %d", status)
	}
	eventually(t, "one that has shown its key makes room", func() bool {
		c := r.dialTLS()
		if c != nil {
			r.statusOf(c, wrong) // one that says nothing at all is closed after a while
		}
		return c != nil
	})
	if r.dialTLS() != nil {
		t.Error("again one more than the limit came in")
	}
	_ = in[1].Close()
	eventually(t, "one that has gone makes room", func() bool { return r.dialTLS() != nil })
	if status := r.statusOf(in[0], r.apiKey); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// connFrom is a connection with a remote address.
type connFrom struct {
	net.Conn
	from net.Addr
}

func (a *connFrom) RemoteAddr() net.Addr { return a.from }

func TestUnauthenticatedLimiter_CountsByClient(t *testing.T) {
	t.Parallel()
	u := newUnauthenticatedLimiter(2, slog.New(slog.DiscardHandler))
	from := func(addr string) *connFrom {
		return &connFrom{from: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))}
	}
	first := from("192.0.2.1:1")
	for _, c := range []struct {
		conn net.Conn
		in   bool
	}{
		{first, true}, {from("192.0.2.1:2"), true}, {from("192.0.2.1:3"), false}, {from("192.0.2.2:1"), true},
		{&connFrom{from: &net.UnixAddr{Name: "@"}}, true}, {&connFrom{from: &net.UnixAddr{Name: "x"}}, true},
		{&connFrom{from: &net.UnixAddr{Name: "y"}}, false},
	} {
		if got := u.add(c.conn); got != c.in {
			t.Errorf("%s: %v, want %v", c.conn.RemoteAddr(), got, c.in)
		}
	}
	u.remove(first)
	u.remove(first) // does nothing
	if !u.add(first) || u.add(from("192.0.2.1:5")) {
		t.Error("a removed connection makes room for exactly one")
	}
	for c := range u.clients {
		u.remove(c)
	}
	if len(u.clients) > 0 {
		t.Errorf("connections that were removed are kept: %+v", u)
	}
}
