// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bytes"
	"crypto/tls"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/ticketkeys"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestServer_ResumesSessionsOfServerWithSameKey(t *testing.T) {
	t.Parallel()
	first := newTestServer(t, func(o *Options) { o.TicketKeys = newTicketKeys(t, 1) })
	beside := func(keys *ticketkeys.Keys) *testServer {
		return newTestServer(t, func(o *Options) {
			o.Certificates, o.TicketKeys = first.edge.opt.Certificates, keys
		})
	}
	for _, c := range []struct {
		what   string
		second *testServer
		want   bool
	}{
		{"same key", beside(newTicketKeys(t, 1)), true},
		{"another key", beside(newTicketKeys(t, 2)), false},
		{"no key", beside(nil), false},
	} {
		cache := tls.NewLRUClientSessionCache(1)
		if first.resumes(first.https, cache) || !first.resumes(first.https, cache) {
			t.Errorf("%s: the first server resumes its own sessions only the second time", c.what)
		}
		if got := first.resumes(c.second.https, cache); got != c.want {
			t.Errorf("%s: resumed %t, want %t", c.what, got, c.want)
		}
	}
}

func newTicketKeys(t *testing.T, fill byte) *ticketkeys.Keys {
	t.Helper()
	secret, err := seal.New(bytes.Repeat([]byte{fill}, seal.KeySize))
	must.Succeed(t, err)
	return ticketkeys.New(secret)
}

// resumes sends a request to a server that has the certificates of w, and reports whether the
// session was resumed.
func (w *testServer) resumes(addr string, cache tls.ClientSessionCache) bool {
	w.t.Helper()
	c := tls.Client(w.dial(addr), &tls.Config{ServerName: "app.example.com", RootCAs: w.roots,
		ClientSessionCache: cache})
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: app.example.com\r\n\r\n")); err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // with what comes before it: the ticket
		w.t.Fatal(err)
	}
	return c.ConnectionState().DidResume
}
