// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/framingtest"
)

// TestPublic_ConformsToHTTP2 runs h2spec against the https listener. The suite knows its server as
// localhost, which no endpoint can be called, so the request's host is replaced.
func TestPublic_ConformsToHTTP2(t *testing.T) {
	w := newTestServer(t)
	e := New(Options{
		HTTPS: listenLoopback(t), Certificates: w.edge.opt.Certificates, Logger: w.logger(),
		Endpoints: testEndpoints{}, Handler: serveFunc(echo),
	})
	handle := e.http.Handler
	e.http.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.Host); err == nil && host == "localhost" {
			r.Host = "app.example.com"
		}
		handle.ServeHTTP(rw, r)
	})
	e.Start(context.Background())
	t.Cleanup(e.Close)
	framingtest.H2Spec(t, e.opt.HTTPS.Addr(), true)
	// after GOAWAY net/http takes a second
	for deadline := time.Now().Add(maxWait); e.Live() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections live on", e.Live())
		}
	}
}
