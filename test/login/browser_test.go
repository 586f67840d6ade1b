// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// browser keeps cookies, follows redirects, fills forms, and sends the headers of a navigation. It
// sends no cookies with a POST from another site, like a browser whose cookies are all
// SameSite=Lax.
type browser struct {
	t     testing.TB
	jar   *cookiejar.Jar
	tr    *http.Transport
	extra http.Header // sent with every request to an endpoint

	posted url.Values // the last form
}

var addresses atomic.Uint32

// newBrowser makes a browser with an IP address of its own: rate limits are per address.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must.Succeed(t, err)
	n := addresses.Add(1)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}}
	b := &browser{t: t, jar: jar, extra: http.Header{},
		tr: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: env.certs.pool},
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, dialAddress(addr))
			}}}
	t.Cleanup(b.tr.CloseIdleConnections)
	return b
}

// http1 makes the browser speak HTTP/1.1 only.
func (b *browser) http1() *browser {
	b.tr.ForceAttemptHTTP2, b.tr.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	return b
}

// dialAddress returns the loopback address that serves a host of the tests.
func dialAddress(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	switch {
	case strings.HasSuffix(host, ".localhost"), host == "127.0.0.1":
		return net.JoinHostPort("127.0.0.1", port)
	case port == "443":
		return env.at.HTTPS.String()
	default:
		return env.at.HTTP.String()
	}
}

// page is the response to a navigation.
type page struct {
	status int
	url    *url.URL
	header http.Header
	body   string
	hops   []hop // all responses of the navigation, in order
}

type hop struct {
	url    *url.URL
	status int
	header http.Header
}

func (p page) String() string {
	var way []string
	for _, h := range p.hops {
		way = append(way, fmt.Sprintf("%d %s", h.status, h.url.Redacted()))
	}
	return fmt.Sprintf("%s\n%.600s", strings.Join(way, "\n-> "), p.body)
}

// findHop returns the first response whose URL's path has the suffix.
func (p page) findHop(suffix string) (hop, bool) {
	i := slices.IndexFunc(p.hops, func(h hop) bool { return strings.HasSuffix(h.url.Path, suffix) })
	if i < 0 {
		return hop{}, false
	}
	return p.hops[i], true
}

// echo decodes the upstream's description of the request that it got.
func (p page) echo(t testing.TB) echo {
	t.Helper()
	var e echo
	if err := json.Unmarshal([]byte(p.body), &e); err != nil || p.status != http.StatusOK {
		t.Fatalf("no response of the upstream: %s", p)
	}
	return e
}

// parse parses a URL.
func parse(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	must.Succeed(t, err)
	return u
}

// visit navigates to the URL, as from the address bar, and follows redirects.
func (b *browser) visit(target string) page {
	b.t.Helper()
	return b.follow(b.navigation(http.MethodGet, parse(b.t, target), nil, ""))
}

// firstResponse navigates to the URL without following redirects.
func (b *browser) firstResponse(target string) page {
	b.t.Helper()
	return b.do(b.navigation(http.MethodGet, parse(b.t, target), nil, ""))
}

// visitUntil navigates to the URL until done accepts the first response, or the page after all
// redirects, and returns that page.
func (b *browser) visitUntil(target string, done func(page) bool) page {
	b.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	ctx := timeoutContext(b.t)
	for {
		first := b.firstResponse(target)
		if done(first) {
			return first
		}
		p := b.visit(target)
		if done(p) {
			return p
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			b.t.Fatalf("after %s the page is %s", maxWait, p)
		}
	}
}

func (b *browser) navigation(method string, to *url.URL, form url.Values, from string) *http.Request {
	b.t.Helper()
	r, err := http.NewRequestWithContext(timeoutContext(b.t), method, to.String(), strings.NewReader(form.Encode()))
	must.Succeed(b.t, err)
	b.posted = form
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", "document")
	r.Header.Set("Sec-Fetch-Site", "none")
	r.Header.Set("User-Agent",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", from)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if siteOf(from) != siteOf(to.String()) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
	}
	return r
}

// do sends one request with the cookies of its URL, and keeps those of the response.
func (b *browser) do(r *http.Request) page {
	b.t.Helper()
	if r.Header.Get("Sec-Fetch-Site") != "cross-site" || r.Method == http.MethodGet {
		for _, c := range b.jar.Cookies(r.URL) {
			r.AddCookie(c)
		}
	}
	if strings.HasSuffix(r.URL.Hostname(), domain) {
		for name, values := range b.extra {
			r.Header[name] = values
		}
	}
	res, err := b.tr.RoundTrip(r)
	if err != nil {
		b.t.Fatalf("%s %s: %v", r.Method, r.URL.Redacted(), err)
	}
	defer res.Body.Close()
	b.jar.SetCookies(r.URL, res.Cookies())
	recordSecrets(r, b.posted, res.Header)
	p := page{status: res.StatusCode, url: r.URL, header: res.Header, body: text(b.t, res.Body)}
	p.hops = []hop{{url: p.url, status: p.status, header: p.header}}
	return p
}

// follow sends the request and follows redirects.
func (b *browser) follow(r *http.Request) page {
	b.t.Helper()
	p := b.do(r)
	for range 20 {
		location := p.header.Get("Location")
		if p.status < 300 || p.status > 399 || location == "" {
			return p
		}
		to, err := p.url.Parse(location)
		if err != nil {
			b.t.Fatalf("Location %q: %v", location, err)
		}
		next := b.do(b.navigation(http.MethodGet, to, nil, ""))
		next.hops = append(p.hops, next.hops...)
		p = next
	}
	b.t.Fatalf("redirects without end: %s", p)
	return p
}

// form is a form of a page.
type form struct {
	action string
	values url.Values
}

// form returns the first form that has the field.
func (p page) form(field string) (form, bool) {
	root, err := html.Parse(strings.NewReader(p.body))
	if err != nil {
		return form{}, false
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != "form" {
			continue
		}
		f := form{action: attribute(n, "action"), values: url.Values{}}
		for in := range n.Descendants() {
			if name := attribute(in, "name"); in.Data == "input" && name != "" && attribute(in, "type") != "submit" {
				f.values.Set(name, attribute(in, "value"))
			}
		}
		if f.values.Has(field) {
			return f, true
		}
	}
	return form{}, false
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// post submits a form of the page.
func (b *browser) post(p page, f form) page {
	b.t.Helper()
	to, err := p.url.Parse(f.action)
	must.Succeed(b.t, err)
	next := b.follow(b.navigation(http.MethodPost, to, f.values, p.url.Scheme+"://"+p.url.Host))
	next.hops = append(p.hops, next.hops...)
	return next
}

// person is a user of every provider.
type person struct{ email, password string }

var (
	alice = person{"alice@example.com", "alice-password"}
	bob   = person{"bob@example.com", "bob-password"}
	eve   = person{"eve@example.com", "eve-password"} // whose address is not verified
)

// asksPassword reports whether the page is a provider's sign-in form.
func (p page) asksPassword() bool {
	_, ok := p.form("password")
	return ok
}

// signIn submits a provider's sign-in form, and then the form with its SAML response, if any.
func (b *browser) signIn(p page, who person) page {
	b.t.Helper()
	p = b.submitPassword(p, who)
	if f, ok := p.form("SAMLResponse"); ok {
		p = b.post(p, f)
	}
	return p
}

// submitPassword submits a provider's sign-in form.
func (b *browser) submitPassword(p page, who person) page {
	b.t.Helper()
	f, ok := p.form("password")
	if !ok {
		b.t.Fatalf("no page asks for a password: %s", p)
	}
	for _, name := range []string{"login", "username", "user"} {
		if f.values.Has(name) {
			f.values.Set(name, who.email)
		}
	}
	f.values.Set("password", who.password)
	return b.post(p, f)
}

// fetch sends a request of a script: no navigation, and no redirects.
func (b *browser) fetch(target string, header ...string) page {
	b.t.Helper()
	r, err := http.NewRequestWithContext(timeoutContext(b.t), http.MethodGet, target, nil)
	must.Succeed(b.t, err)
	r.Header.Set("Accept", "*/*")
	r.Header.Set("Sec-Fetch-Mode", "cors")
	r.Header.Set("Sec-Fetch-Dest", "empty")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return b.do(r)
}

// websocket opens a websocket and reads its greeting; open is nil when the status is not 101.
func (b *browser) websocket(s *site) (open net.Conn, status int) {
	b.t.Helper()
	conn, err := tls.Dial("tcp", env.at.HTTPS.String(),
		&tls.Config{ServerName: s.host, RootCAs: env.certs.pool, NextProtos: []string{"http/1.1"}})
	must.Succeed(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(maxWait))
	r, err := http.NewRequest(http.MethodGet, s.url+"/ws", nil)
	must.Succeed(b.t, err)
	for _, c := range b.jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": s.url} {
		r.Header.Set(k, v)
	}
	must.Succeed(b.t, r.Write(conn))
	buffered := bufio.NewReader(conn)
	res, err := http.ReadResponse(buffered, r)
	must.Succeed(b.t, err)
	if res.StatusCode != http.StatusSwitchingProtocols {
		return nil, res.StatusCode
	}
	hello := make([]byte, 7)
	if _, err := io.ReadFull(buffered, hello); err != nil || string(hello[2:]) != "hello" {
		b.t.Fatalf("the websocket sent %q, %v", hello, err)
	}
	return conn, res.StatusCode
}

// siteOf returns the site of a URL: the last two labels of its host.
func siteOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	labels := strings.Split(u.Hostname(), ".")
	return strings.Join(labels[max(0, len(labels)-2):], ".")
}
