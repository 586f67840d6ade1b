// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
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
	if dialTLS(r) != nil {
		t.Error("a connection above the limit was accepted")
	}
	if refused := metric(r, "fairlead_server_connections_refused_total"); refused < 1 {
		t.Errorf("%v refused connections were counted", refused)
	}
	if status := statusOf(r, conns[0], wrong); status != http.StatusUnauthorized { // accepted ones are still served
		t.Errorf("status %d", status)
	}
	if status := statusOf(r, conns[0], r.APIKey); status != http.StatusOK {
		t.Fatalf("the right key: status %d", status)
	}
	servicetest.Eventually(t, "a connection after one has shown a valid key", func() bool {
		c := dialTLS(r)
		if c != nil {
			statusOf(r, c, wrong) // a connection without a request would be closed after a while
		}
		return c != nil
	})
	if dialTLS(r) != nil {
		t.Error("again a connection above the limit was accepted")
	}
	_ = conns[1].Close()
	servicetest.Eventually(t, "a connection after one was closed", func() bool { return dialTLS(r) != nil })
	if status := statusOf(r, conns[0], r.APIKey); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}
