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
	"sync/atomic"
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

// holdSilent opens n connections with the service from a local address, sends their first bytes, and
// opens each again when the server closes it, until the test ends. dialed counts the first ones.
func holdSilent(r *servicetest.Server, from string, n int, first []byte, dialed *atomic.Int32) {
	ctx, stop := context.WithCancel(servicetest.Context(r.T))
	var dialing sync.WaitGroup
	r.T.Cleanup(dialing.Wait)
	r.T.Cleanup(stop)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		dialing.Go(func() {
			count := sync.OnceFunc(func() { dialed.Add(1) })
			for ctx.Err() == nil {
				if c, err := d.DialContext(ctx, "tcp", r.Addrs.Service.String()); err == nil {
					count()
					closed := context.AfterFunc(ctx, func() { _ = c.Close() })
					_, _ = c.Write(first)
					_, _ = io.Copy(io.Discard, c) // until the server closes it
					closed()
					_ = c.Close()
				}
				timer.Sleep(ctx, 100*time.Millisecond)
			}
		})
	}
}

// runAgents runs agents from 127.0.0.1 and waits until all have sessions.
func runAgents(r *servicetest.Server, n int) {
	r.T.Helper()
	ctx, began := servicetest.Context(r.T), time.Now()
	clients := make([]*tunnel.Client, n)
	for i := range clients {
		clients[i], _, _ = r.RunTunnelClient(tunnel.ClientConfig{Connections: 1, Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: r.Authtoken, ClientVersion: "0.0.0-test", OS: "linux"}
		}})
	}
	for i, c := range clients {
		if _, err := c.Wait(ctx); err != nil {
			r.T.Fatalf("agent %d has no session after %s: %v", i, time.Since(began), err)
		}
	}
	r.T.Logf("%d agents had sessions after %s", n, time.Since(began).Round(time.Millisecond))
}

// TestServer_AdmitsEveryAgentOfOneAddress checks that agents behind one NAT which all come back at
// once get their sessions, while something at the same address opens silent connections.
func TestServer_AdmitsEveryAgentOfOneAddress(t *testing.T) {
	t.Parallel()
	const agents, silent = 600, 300
	r := servicetest.Start(t)
	holdSilent(r, "127.0.0.1", silent, nil, new(atomic.Int32))
	servicetest.Eventually(t, "the address to have as many as it may", func() bool {
		return metric(r, "fairlead_server_connections_refused_total") > 0
	})
	runAgents(r, agents)
}

// TestServer_AdmitsAgentsBesideManySilentAddresses checks that addresses which together have more silent
// connections, or handshakes that they do not go on with, than there may be handshakes keep no others out.
func TestServer_AdmitsAgentsBesideManySilentAddresses(t *testing.T) {
	t.Parallel()
	for name, first := range map[string][]byte{"silent": nil, "after a ClientHello": clientHello(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servicetest.Start(t)
			var dialed atomic.Int32
			for i := range 4 {
				holdSilent(r, fmt.Sprintf("127.0.0.%d", 2+i), 256, first, &dialed)
			}
			servicetest.Eventually(t, "silent connections", func() bool { return dialed.Load() == 4*256 })
			runAgents(r, 50)
		})
	}
}

// clientHello returns the first record of a TLS client that knows the tunnel's protocol.
func clientHello(t *testing.T) []byte {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(far, &tls.Config{ServerName: "127.0.0.1", NextProtos: []string{tunnel.ALPN}}).Handshake()
	}()
	record := make([]byte, 16<<10)
	n, err := near.Read(record)
	must.Succeed(t, err)
	_ = near.Close()
	return record[:n]
}
