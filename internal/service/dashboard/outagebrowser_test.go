// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/chromium"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// outageNotice limits how long a page may show a server that is gone as if it were there. A busy
// machine may take a little longer than the page's own 4.5 s.
const outageNotice = 7 * time.Second

// relay passes on what clients and a server say, except while its gate is locked: then the server
// is silent, and no connection ends.
type relay struct {
	net.Listener
	gate sync.RWMutex
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	r := &relay{Listener: listener}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go r.copy(server, client)
			go r.copy(client, server)
		}
	}()
	return r
}

func (r *relay) copy(to, from net.Conn) {
	defer to.Close()
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		r.gate.RLock()
		_, failed := to.Write(buf[:n])
		r.gate.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}

// testServerFrozenAndKilled checks that a page tells what happened to its server although nothing
// else makes it read itself again.
func testServerFrozenAndKilled(t *testing.T, b *chromium.Tab, _ *fake, srv *httptest.Server) {
	const told = "document.querySelector('.stale')?.textContent.includes('does not answer')"
	wait := func(event string) {
		start := time.Now()
		b.WaitUntil("the notice after the server was "+event, told)
		if took := time.Since(start); took > outageNotice {
			t.Errorf("the page told after %s that the server was %s, want at most %s", took, event, outageNotice)
		}
	}
	relay := newRelay(t, srv.Listener.Addr().String())
	b.Base = chromium.Localhost("http://" + relay.Addr().String())
	setSignIn(b, signedInAs(t, srv, "flk_admin"))
	b.Open("/ui/agents")
	b.WaitUntil("the stream", "'following' in document.body.dataset")
	relay.gate.Lock()
	wait("frozen")
	relay.gate.Unlock()
	b.WaitUntil("that it is up to date again", "'following' in document.body.dataset && !("+told+")")
	relay.Close()
	srv.Listener.Close()
	srv.CloseClientConnections()
	wait("killed")
}
