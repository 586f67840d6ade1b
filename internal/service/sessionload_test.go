// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// sessionLoad is a public service with an endpoint behind a login, whose upstream holds requests of
// every kind until the test lets them end.
type sessionLoad struct {
	*loginServer
	tenant *servicetest.Tenant
	serial atomic.Int64
	edge   net.Addr // whose https listener clients use; that of loginServer, unless a test sets it

	mu    sync.Mutex
	held  map[string]*heldRequest
	scope map[string]string // of sessions, by URL
}

const (
	loadURL    = "https://app.example.com"
	loadCookie = "__Host-fl-oidc"
)

func startSessionLoad(t *testing.T, change ...func(*service.Options)) *sessionLoad {
	t.Helper()
	c := &sessionLoad{held: map[string]*heldRequest{}, scope: map[string]string{}}
	c.loginServer = startLogins(t, change...)
	c.edge = c.Addrs.HTTPS
	c.tenant = c.Server.Tenant()
	c.protect(loadURL, c.policy(""), c.holdRequest)
	c.learnScope(loadURL)
	return c
}

// learnScope logs in at the URL and keeps the scope of its sessions for addSession.
func (c *sessionLoad) learnScope(url string) {
	c.T.Helper()
	b := c.newLoginBrowser()
	if got, _ := c.logIn(b, url+"/hello"); got.status != 200 {
		c.T.Fatalf("a login: %d %s", got.status, got.body)
	}
	raw, err := base64.RawURLEncoding.DecodeString(cookiesOf(b, url)[loadCookie])
	if err != nil {
		c.T.Fatal(err)
	}
	hash := sha256.Sum256(raw)
	s, err := c.tenant.Store.LiveSession(servicetest.Context(c.T), c.Account, hash[:])
	if err != nil {
		c.T.Fatal(err)
	}
	c.scope[url] = s.Scope
}

// loadSession is a session of a user at a URL, with its Cookie header.
type loadSession struct{ user, session, cookie, url string }

// addSession makes a session of the user at the URL, as a login does.
func (c *sessionLoad) addSession(user, url string, change ...func(*account.NewLogin)) loadSession {
	c.T.Helper()
	raw := make([]byte, 32)
	_, _ = rand.Read(raw)
	hash := sha256.Sum256(raw)
	l := account.NewLogin{Authentication: account.Authentication{Key: "oidc\x00test\x00" + user,
		Provider: account.IdentityProvider{Name: "test"},
		Identity: account.LoginIdentity{ProviderUserID: user, Email: user + "@example.com"}},
		StartedAt: time.Now(), URL: url, Scope: c.scope[url], TokenHash: hash[:], MaxDuration: time.Hour}
	for _, f := range change {
		f(&l)
	}
	s, err := c.tenant.Store.Login(servicetest.Context(c.T), c.Account, l)
	if err != nil {
		c.T.Fatal(err)
	}
	return loadSession{s.Identity.ID, s.ID, loadCookie + "=" + base64.RawURLEncoding.EncodeToString(raw), url}
}

// heldRequest is a request at the upstream.
type heldRequest struct {
	begun chan struct{} // closed when the upstream serves it
	more  chan struct{} // closed by the test: the upstream sends the rest
	ended chan time.Time
	moved atomic.Int64 // bytes
	sent  atomic.Int64 // bytes from the client, of an upload that stalls
	whole atomic.Bool  // the upstream received a complete upload
}

// heldRequest returns the request with the id, which it makes the first time.
func (c *sessionLoad) heldRequest(id string) *heldRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[id] == nil {
		c.held[id] = &heldRequest{begun: make(chan struct{}), more: make(chan struct{}), ended: make(chan time.Time, 1)}
	}
	return c.held[id]
}

const before, after = "data: before\n\n", "data: after\n\n"

var downloaded = bytes.Repeat([]byte("0123456789abcdef"), 2<<10)

// holdRequest is the upstream's handler.
func (c *sessionLoad) holdRequest(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Stream")
	if id == "" {
		_, _ = io.WriteString(w, "hello")
		return
	}
	h := c.heldRequest(id)
	defer func() { h.ended <- time.Now() }()
	rc := http.NewResponseController(w)
	switch r.URL.Path {
	case "/websocket":
		h.websocket(rc)
	case "/events":
		_, _ = io.WriteString(w, before)
		_ = rc.Flush()
		close(h.begun)
		select {
		case <-r.Context().Done():
		case <-h.more:
			_, _ = io.WriteString(w, after)
		}
	case "/download":
		close(h.begun)
		for {
			select {
			case <-h.more:
				return
			default:
			}
			n, err := w.Write(downloaded)
			if h.moved.Add(int64(n)); err != nil {
				return
			}
		}
	case "/upload":
		for buf := make([]byte, 4<<10); ; {
			n, err := r.Body.Read(buf)
			if h.moved.Add(int64(n)) == int64(n) && n > 0 {
				close(h.begun)
			}
			if err == io.EOF { //nolint:errorlint // a Reader's
				_, _ = fmt.Fprintf(w, "%d", h.moved.Load())
			}
			if err != nil {
				return
			}
		}
	case "/stalled":
		close(h.begun) // and reads only when the test lets it
		<-h.more
		if n, err := io.Copy(io.Discard, r.Body); err == nil {
			h.whole.Store(true)
			_, _ = fmt.Fprintf(w, "%d", n)
		}
	}
}

// websocket upgrades the connection and sends before, and after when the test lets it.
func (h *heldRequest) websocket(rc *http.ResponseController) {
	conn, buffered, err := rc.Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+
		before)
	close(h.begun)
	go func() {
		<-h.more
		_, _ = io.WriteString(conn, after)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(io.Discard, buffered)
}

// openRequest is a request at its client.
type openRequest struct {
	*heldRequest
	kind string
	as   loadSession
	read func()          // lets the client of a download read
	over chan requestEnd // gets its end
}

// requestEnd is what the client received when its request has ended.
type requestEnd struct {
	got string
	err error
	at  time.Time
}

// kinds of requests: a path of the upstream's, and the protocol of the client's connection.
var kinds = []string{"websocket http1", "events http1", "events http2", "download http1", "download http2",
	"upload http1", "upload http2", "stalled http1", "stalled http2"}

// open sends a request and returns when it is under way.
func (c *sessionLoad) open(kind string, as loadSession, http2 *http.Client) *openRequest {
	c.T.Helper()
	name, protocol, _ := strings.Cut(kind, " ")
	id := fmt.Sprint(c.serial.Add(1))
	o := &openRequest{heldRequest: c.heldRequest(id), kind: kind, as: as, over: make(chan requestEnd, 1)}
	reading := make(chan struct{})
	o.read = sync.OnceFunc(func() { close(reading) })
	if name != "download" {
		o.read()
	}
	if name == "websocket" {
		go func() { o.over <- c.upgrade(as, id) }()
	} else {
		client := http2
		if protocol == "http1" {
			client = c.http1()
		}
		method, body := "GET", io.Reader(nil)
		if name == "upload" || name == "stalled" {
			method, body = "POST", &uploading{o.heldRequest, name == "stalled", strings.NewReader(before)}
		}
		r, err := http.NewRequestWithContext(servicetest.Context(c.T), method, as.url+"/"+name, body)
		if err != nil {
			c.T.Fatal(err)
		}
		r.Header.Set("Cookie", as.cookie)
		r.Header.Set("Stream", id)
		go func() { o.over <- exchange(client, r, reading) }()
	}
	select {
	case <-o.begun:
	case e := <-o.over:
		c.T.Fatalf("%s: %q, %v", kind, e.got, e.err)
	case <-time.After(servicetest.MaxWait):
		c.T.Fatalf("%s does not begin", kind)
	}
	return o
}

// uploading is a body that ends when more is closed; an endless one fills every buffer on the way.
type uploading struct {
	*heldRequest
	endless bool
	first   *strings.Reader
}

func (u *uploading) Read(p []byte) (int, error) {
	if n, err := u.first.Read(p); err == nil {
		u.sent.Add(int64(n))
		return n, nil
	}
	if !u.endless {
		<-u.more
		return 0, io.EOF
	}
	select {
	case <-u.more:
		return 0, io.EOF
	default:
	}
	n := copy(p, downloaded)
	u.moved.Store(u.sent.Add(int64(n)))
	return n, nil
}

// exchange sends a request and, once reading is closed, reads the answer to its end.
func exchange(client *http.Client, r *http.Request, reading <-chan struct{}) requestEnd {
	res, err := client.Do(r)
	if err != nil {
		return requestEnd{"", err, time.Now()}
	}
	defer res.Body.Close()
	<-reading
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != 200 {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return requestEnd{string(b), err, time.Now()}
}

// upgrade opens a websocket and reads it to its end.
func (c *sessionLoad) upgrade(as loadSession, id string) requestEnd {
	conn, err := tls.Dial("tcp", c.edge.String(), &tls.Config{ServerName: "app.example.com", RootCAs: c.Roots,
		NextProtos: []string{"http/1.1"}})
	if err != nil {
		return requestEnd{"", err, time.Now()}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(servicetest.MaxWait))
	_, _ = io.WriteString(conn,
		"GET /websocket HTTP/1.1\r\nHost: app.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Cookie: "+as.cookie+"\r\nStream: "+id+"\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != 101 {
		return requestEnd{"", fmt.Errorf("%v, %w", res, err), time.Now()}
	}
	b, err := io.ReadAll(in)
	return requestEnd{string(b), err, time.Now()}
}

// dial connects to the public edge with a small buffer, so that a client that does not read stalls
// soon.
func (c *sessionLoad) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.edge.String())
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(32 << 10)
	}
	return conn, err
}

// http1 returns a client of the public edge over HTTP/1.1.
func (c *sessionLoad) http1() *http.Client {
	return c.client(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.Roots, NextProtos: []string{"http/1.1"}}})
}

// http2 returns a client of the public edge with one connection over HTTP/2.
func (c *sessionLoad) http2() *http.Client {
	return c.client(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.Roots}, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}})
}

// client returns a client over the transport that connects with dial and does not follow redirects.
func (c *sessionLoad) client(tr *http.Transport) *http.Client {
	tr.DialContext, tr.DisableCompression = c.dial, true
	c.T.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// adminClient returns a client of the API with one connection.
func (c *sessionLoad) adminClient() func(method, path string) (int, error) {
	tr := c.NewAPITransport()
	return func(method, path string) (int, error) {
		res, err := tr.RoundTrip(c.NewAPIRequest(method, path, nil))
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, err
	}
}

// waitStalled waits until no more bytes move: every buffer is full, and one end does not read.
func (o *openRequest) waitStalled(t testing.TB) {
	t.Helper()
	tick, over := time.NewTicker(50*time.Millisecond), time.After(servicetest.MaxWait)
	defer tick.Stop()
	for last := int64(-1); o.moved.Load() != last; {
		last = o.moved.Load()
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("%s does not stall", o.kind)
		}
	}
}
