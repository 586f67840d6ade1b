// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// ServeTCP serves the connections to a port of its own and returns its address.
func ServeTCP(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

// Echo is an upstream for ServeTCP that sends back what it receives.
func Echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// ServeHTTP serves HTTP on a port of its own and returns its address.
func ServeHTTP(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

// DescribeRequest answers with the request as the upstream gets it: host and path, X-Forwarded-For,
// X-Forwarded-Proto, body.
func DescribeRequest(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, r.Host+r.URL.Path+"|"+r.Header.Get("X-Forwarded-For")+"|"+
		r.Header.Get("X-Forwarded-Proto")+
		"|"+string(body))
}
