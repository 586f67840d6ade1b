// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// upstream is a web application behind an agent.
//
//	/ws      a websocket that sends hello and then waits
//	/events  server-sent events: one, and another for each value of more
//	/stall   an endless download
//	/app     a page that opens /ws and shows its state in the title
//	/cookie  sets the cookies of the header X-Set-Cookie
//	others   the request, as JSON of echo
type upstream struct {
	addr string

	closed chan string   // the path of each stream whose client has closed it
	more   chan struct{} // each value sends an event to one client of /events
}

// echo is a request to the upstream.
type echo struct {
	Method, Host, URL string
	Header            http.Header
}

func newUpstream(t testing.TB) *upstream {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	u := &upstream{addr: l.Addr().String(), closed: make(chan string, 64), more: make(chan struct{})}
	srv := &http.Server{Handler: u}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return u
}

const appPage = `<!doctype html><meta charset=utf-8><title>starting</title>
<link rel=icon href=data:,><h1>app</h1><script>
const ws = new WebSocket("wss://" + location.host + "/ws");
ws.onmessage = e => document.title = "ws " + e.data;
ws.onclose = e => document.title = "ws closed";
</script>`

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ws":
		u.websocket(w, r)
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: hello\n\n")
		_ = http.NewResponseController(w).Flush()
		for r.Context().Err() == nil {
			select {
			case <-u.more:
				_, _ = io.WriteString(w, "data: more\n\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				u.recordClosed(r)
			}
		}
	case "/stall":
		for chunk := make([]byte, 1<<16); ; {
			if _, err := w.Write(chunk); err != nil {
				u.recordClosed(r)
				return
			}
		}
	case "/app":
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, appPage)
	case "/cookie":
		for _, c := range r.Header.Values("X-Set-Cookie") {
			w.Header().Add("Set-Cookie", c)
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(echo{Method: r.Method, Host: r.Host, URL: r.URL.String(), Header: r.Header})
	}
}

func (u *upstream) recordClosed(r *http.Request) {
	select {
	case u.closed <- r.URL.Path:
	default:
	}
}

// waitClosed waits until one stream of each path is closed, and no other.
func (u *upstream) waitClosed(t testing.TB, paths ...string) {
	t.Helper()
	timeout := time.After(maxWait)
	for len(paths) > 0 {
		select {
		case path := <-u.closed:
			if !slices.Contains(paths, path) {
				t.Fatalf("%s was closed; still open are %v", path, paths)
			}
			paths = slices.DeleteFunc(paths, func(p string) bool { return p == path })
		case <-timeout:
			t.Fatalf("still open at the upstream: %v", paths)
		}
	}
}

func (u *upstream) websocket(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "+
			"%s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	fmt.Fprint(conn, "\x81\x05hello")
	_, _ = io.Copy(io.Discard, bufio.NewReader(buffered))
	u.recordClosed(r)
}
