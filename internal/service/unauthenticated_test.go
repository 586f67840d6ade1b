// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// dialTLS opens a connection to the service as a browser or curl would; nil when it is closed at
// once.
func dialTLS(r *servicetest.Server) *tls.Conn {
	r.T.Helper()
	config := r.ClientTLS()
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"http/1.1"}
	raw, err := (&net.Dialer{}).DialContext(servicetest.Context(r.T), "tcp", r.Addrs.Service.String())
	must.Succeed(r.T, err)
	r.T.Cleanup(func() { _ = raw.Close() })
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(servicetest.Context(r.T)); err != nil {
		var notTrusted *tls.CertificateVerificationError
		if errors.As(err, &notTrusted) {
			r.T.Fatal(err)
		}
		return nil
	}
	return c
}

// statusOf sends a request over the connection and returns the status; the connection stays open.
func statusOf(r *servicetest.Server, c *tls.Conn, key string) int {
	r.T.Helper()
	_, err := fmt.Fprintf(c,
		"GET /endpoints HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nService-Version: 2\r\n\r\n", key)
	must.Succeed(r.T, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must.Succeed(r.T, err)
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

func TestServer_LimitsUnauthenticatedConnections(t *testing.T) {
	t.Parallel()
	const most = 4
	r := servicetest.Start(t, func(o *service.Options) { o.SetMaxUnauthenticated(most) })
	for range most { // two connections each, which have shown a credential and do not count
		openSession(r, r.Authtoken)
	}
	wrong := account.NewSecret(account.APIKeyPrefix)
	var conns []*tls.Conn
	for len(conns) < most {
		servicetest.Eventually(t, "a connection below the limit", func() bool {
			c := dialTLS(r)
			if c != nil {
				conns = append(conns, c)
			}
			return c != nil
		})
		if status := statusOf(r, conns[len(conns)-1], wrong); status != http.StatusUnauthorized {
			t.Fatalf("a wrong key: status %d", status)
		}
	}
	if status := statusOf(r, conns[1], r.APIKey); status != http.StatusOK {
		t.Fatalf("the right key: status %d", status)
	}
	for range most { // one takes the authenticated connection's room, the others that of the oldest
		servicetest.Eventually(t, "a connection above the limit", func() bool { return dialTLS(r) != nil })
	}
	if n, err := conns[0].Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("the oldest connection without a credential is still open: %d, %v", n, err)
	}
	if refused := metric(r, "fairlead_server_connections_refused_total"); refused < 1 {
		t.Errorf("%v refused connections were counted", refused)
	}
	if status := statusOf(r, conns[1], r.APIKey); status != http.StatusOK {
		t.Errorf("an authenticated connection: status %d", status)
	}
}

// TestServer_LimitsWebSockets checks that a WebSocket counts as a connection without a credential until
// its hello, and that pages of other sites get none.
func TestServer_LimitsWebSockets(t *testing.T) {
	t.Parallel()
	const most = 2
	r := servicetest.Start(t, func(o *service.Options) { o.SetMaxUnauthenticated(most) })
	upgrade := func(header string, want int) (c *tls.Conn) {
		servicetest.Eventually(t, "a connection", func() bool { c = dialTLS(r); return c != nil })
		_, err := io.WriteString(c, "GET /tunnel HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"+
			"Sec-WebSocket-Protocol: fairlead.1\r\n"+header+"\r\n")
		must.Succeed(t, err)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		must.Succeed(t, err)
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Fatalf("status %d, want %d", res.StatusCode, want)
		}
		return c
	}
	_ = upgrade("Origin: https://another.example\r\n", http.StatusForbidden).Close()
	oldest := upgrade("", http.StatusSwitchingProtocols)
	_ = oldest.SetReadDeadline(time.Now().Add(8 * time.Second)) // without its hello it would end after 10
	for range most {
		upgrade("", http.StatusSwitchingProtocols)
	}
	if _, err := io.Copy(io.Discard, oldest); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest WebSocket without a hello made no room for another one")
	}
}

// TestServer_AdmitsEveryAgentOfOneAddress checks that agents behind one NAT which all come back at
// once get their sessions, while something at the same address opens silent connections.
func TestServer_AdmitsEveryAgentOfOneAddress(t *testing.T) {
	t.Parallel()
	const agents, silent = 600, 300
	r := servicetest.Start(t)
	ctx, stop := context.WithCancel(servicetest.Context(t))
	var dialing sync.WaitGroup
	t.Cleanup(dialing.Wait)
	t.Cleanup(stop)
	for range silent {
		dialing.Go(func() {
			for ctx.Err() == nil {
				if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.Addrs.Service.String()); err == nil {
					closed := context.AfterFunc(ctx, func() { _ = c.Close() })
					_, _ = io.Copy(io.Discard, c) // until the server closes it
					closed()
					_ = c.Close()
				}
				timer.Sleep(ctx, 100*time.Millisecond)
			}
		})
	}
	servicetest.Eventually(t, "the address to have as many as it may", func() bool {
		return metric(r, "fairlead_server_connections_refused_total") > 0
	})
	began := time.Now()
	clients := make([]*tunnel.Client, agents)
	for i := range clients {
		clients[i], _, _ = r.RunTunnelClient(tunnel.ClientConfig{Connections: 1, Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: r.Authtoken, ClientVersion: "0.0.0-test", OS: "linux"}
		}})
	}
	for i, c := range clients {
		if _, err := c.Wait(ctx); err != nil {
			t.Fatalf("agent %d has no session: %v", i, err)
		}
	}
	t.Logf("%d agents had sessions after %s", agents, time.Since(began).Round(time.Millisecond))
}
