// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestServer_RoutesByHost(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	noEndpoint := func(url string) string {
		if url != "" {
			url = " It is " + url + ": scheme, host and port choose the endpoint."
		}
		return "404 " + string(account.CodeEndpointUnknown) + " " + noEndpointMessage + url + "\n"
	}
	for url, want := range map[string]string{
		"https://app.example.com/x":    "200 https://app.example.com GET /x|127.0.0.1|true|127.0.0.1|https|",
		"http://plain.example.com/y":   "200 http://plain.example.com GET /y|127.0.0.1|false|127.0.0.1|http|",
		"http://app.example.com:8080/": "200 http://app.example.com:8080 GET /|127.0.0.1|false|127.0.0.1|http|",
		"https://APP.example.com/":     "200 https://app.example.com GET /|127.0.0.1|true|127.0.0.1|https|",
		"https://unknown.example.com/": noEndpoint("https://unknown.example.com"),
		"http://unknown.example.com/":  noEndpoint("http://unknown.example.com"),
		"https://plain.example.com/":   noEndpoint("https://plain.example.com"), // is http
		"http://localhost/":            noEndpoint(""),
		"http://127.0.0.1/":            noEndpoint(""),
		"http://[::1]/":                noEndpoint(""),

		"http://app.example.com:81/p":                "308 https://app.example.com/p",
		"http://app.example.com/p?q=1&r=//evil.test": "308 https://app.example.com/p?q=1&r=//evil.test",
		"http://app.example.com//evil.test/":         "308 https://app.example.com//evil.test/",
	} {
		res, body := w.get(url)
		if res.StatusCode == http.StatusPermanentRedirect {
			body = res.Header.Get("Location")
		}
		if got := strconv.Itoa(res.StatusCode) + " " + body; got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		if want := strings.HasPrefix(url, "https"); (res.ProtoMajor == 2) != want {
			t.Errorf("%s: HTTP/%d", url, res.ProtoMajor)
		}
	}
	redirected, err := w.client().Post("http://app.example.com/form", "text/plain", strings.NewReader("kept"))
	if err != nil || redirected.StatusCode != http.StatusPermanentRedirect {
		t.Fatalf("%v %v", redirected, err)
	}
	_ = redirected.Body.Close()
}

// TestServer_ServesMappedPorts checks requests that name a port which no endpoint has: Docker, a
// NodePort or kind may map it to the listener's.
func TestServer_ServesMappedPorts(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, func(o *Options) {
		own := o.HTTP.Addr().(*net.TCPAddr).Port
		o.Endpoints = testEndpoints{find: func(
			_ context.Context, host string, ports ...int,
		) (*account.Endpoint, error) {
			if host != "own.example.com" {
				return findEndpoint(t.Context(), host, ports...)
			}
			if i := slices.Index(ports, own); i >= 0 {
				return &account.Endpoint{URL: "http://own.example.com:LISTENER", Scheme: "http", Host: host,
					Port: own}, nil
			}
			return nil, account.Errorf(account.CodeNotFound, "nothing at %s:%v", host, ports)
		}}
		o.Handler = serveFunc(func(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, c Client) {
			_, _ = fmt.Fprintf(w, "%s %d %s %s", ep.URL, c.Port, r.Host, r.Header.Get("X-Forwarded-Host"))
		})
	})
	_, listener, _ := net.SplitHostPort(w.http)
	for _, c := range []struct{ sni, target, host, want string }{
		{"", "/", "plain.example.com:30080", "200 http://plain.example.com 30080 plain.example.com:30080 plain."},
		{"", "/", "plain.example.com:" + listener, "200 http://plain.example.com " + listener},
		{"", "/", "plain.example.com", "200 http://plain.example.com 0 "},
		{"", "/", "plain.example.com:8081", "200 http://plain.example.com:8081 0 "}, // an endpoint's own
		{"", "http://plain.example.com:30080/", "x", "200 http://plain.example.com 30080 plain.example.com:30080 "},
		{"", "/", "own.example.com", "200 http://own.example.com:LISTENER 80 "},
		{"", "/", "own.example.com:30080", "200 http://own.example.com:LISTENER 30080 "},
		{"", "/", "app.example.com:30080", "308 "}, // TLS comes before an endpoint at another port
		{"", "/", "plain.example.com:0", "404 "},
		{"", "/", "unknown.example.com:30080", "404 " + string(account.CodeEndpointUnknown) + " " + noEndpointMessage +
			" It is http://unknown.example.com:30080: "},
		{"app.example.com", "/", "app.example.com:30443", "200 https://app.example.com 30443 "},
		{"app.example.com", "/", "app.example.com:8080", "404 "}, // an endpoint without TLS has it
		{"odd.example.com", "/", "odd.example.com:4001", "404 "}, // the endpoint is at no usual port
		{"app.example.com", "/", "app.other.test:30443", "421 "},
	} {
		conn := w.dial(w.http)
		if c.sni != "" {
			conn = w.dialTLS(c.sni, "http/1.1")
		}
		_, _ = io.WriteString(conn, "GET "+c.target+" HTTP/1.1\r\nHost: "+c.host+"\r\nConnection: close\r\n\r\n")
		if all, _ := framingtest.Answers(conn); len(all) != 1 || !strings.HasPrefix(all[0], c.want) {
			t.Errorf("%s %s: %q, want %q", c.target, c.host, all, c.want)
		}
	}
	res, body := w.get("https://app.example.com/", func(r *http.Request) { r.Host = "app.example.com:30443" })
	if res.ProtoMajor != 2 || !strings.HasPrefix(body, "https://app.example.com 30443 app.example.com:30443 app.") {
		t.Errorf(":authority over HTTP/%d: %q", res.ProtoMajor, body)
	}
}

// TestCertificates_ChosenByName checks that a name that no certificate has ends in the alert for
// that, and that a connection serves the names of its certificate only.
func TestCertificates_ChosenByName(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for _, name := range []string{"unknown.test", "a.b.example.com", ""} {
		//nolint:gosec // it has to fail
		err := tls.Client(w.dial(w.https), &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, c := range map[string]struct{ sni, host, want string }{
		"its own host":                  {"app.example.com", "app.example.com", "200"},
		"another of its certificate":    {"app.example.com", "two.example.com", "200"},
		"another certificate's":         {"app.example.com", "app.other.test", "421"},
		"unknown, of its certificate":   {"app.example.com", "unknown.example.com", "404"},
		"unknown, of no certificate":    {"app.other.test", "app.example.com", "421"},
		"an upper-case name in the SNI": {"APP.example.com", "app.example.com", "200"},
	} {
		conn := w.dialTLS(c.sni, "http/1.1")
		framingtest.Expect(t, conn, "GET / HTTP/1.1\r\nHost: "+c.host+"\r\nConnection: close\r\n\r\n", c.want)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestServer_DeterminesClient(t *testing.T) {
	t.Parallel()
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	trusting := newTestServer(t, func(o *Options) { o.TrustedProxies = local })
	untrusting := newTestServer(t)
	for name, c := range map[string]struct {
		w       *testServer
		headers []string
		want    string // address, TLS, X-Forwarded-For, -Proto
	}{
		"an untrusted client's": {untrusting, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https",
			"Forwarded", "for=192.0.2.1"}, "127.0.0.1|false|127.0.0.1|http"},
		"an untrusted client's spelling": {untrusting, []string{"X_Forwarded_For", "192.0.2.1"},
			"127.0.0.1|false|127.0.0.1|http"},
		"a proxy's": {trusting, []string{"X-Forwarded-For", "192.0.2.1"},
			"192.0.2.1|false|192.0.2.1|http"},
		"what the client made up": {trusting, []string{"X-Forwarded-For", "6.6.6.6, 192.0.2.1"},
			"192.0.2.1|false|192.0.2.1|http"},
		"two proxies": {trusting, []string{"X-Forwarded-For", "6.6.6.6, 192.0.2.1, 10.1.1.1"},
			"192.0.2.1|false|192.0.2.1, 10.1.1.1|http"},
		"two headers": {trusting, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-For", "10.1.1.1"},
			"192.0.2.1|false|192.0.2.1, 10.1.1.1|http"},
		"IPv6": {trusting, []string{"X-Forwarded-For", "2001:db8::1"},
			"2001:db8::1|false|2001:db8::1|http"},
		"IPv6 with a port": {trusting, []string{"X-Forwarded-For", "[2001:db8::1]:4711"},
			"2001:db8::1|false|2001:db8::1|http"},
		"IPv4 with a port": {trusting, []string{"X-Forwarded-For", "192.0.2.1:80"},
			"192.0.2.1|false|192.0.2.1|http"},
		"nothing": {trusting, nil, "127.0.0.1|false|127.0.0.1|http"},
		"rubbish": {trusting, []string{"X-Forwarded-For", "unknown"}, "127.0.0.1|false|127.0.0.1|http"},
		"rubbish before a good one": {trusting, []string{"X-Forwarded-For", "192.0.2.1, x, 10.1.1.1"},
			"10.1.1.1|false|10.1.1.1|http"},
		"only proxies": {trusting, []string{"X-Forwarded-For", "10.1.1.1"},
			"10.1.1.1|false|10.1.1.1|http"},
		"a proxy's, misspelt": {trusting, []string{"X_Forwarded_For", "192.0.2.1"},
			"127.0.0.1|false|127.0.0.1|http"},
		"a proxy that redirects http": {trusting, []string{"X-Forwarded-Proto", "http"},
			"127.0.0.1|false|127.0.0.1|http"},
	} {
		_, body := c.w.get("http://plain.example.com/", func(r *http.Request) {
			for i := 0; i < len(c.headers); i += 2 {
				r.Header[c.headers[i]] = append(r.Header[c.headers[i]], c.headers[i+1])
			}
		})
		if got := strings.TrimSuffix(strings.TrimPrefix(body, "http://plain.example.com GET /|"), "|"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestServer_BelievesTLSOfTrustedProxies checks TLS that ends at a balancer.
func TestServer_BelievesTLSOfTrustedProxies(t *testing.T) {
	t.Parallel()
	trusting := newTestServer(t, func(o *Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	untrusting := newTestServer(t)
	res, body := trusting.get("http://app.example.com/", func(r *http.Request) {
		r.Header.Set("X-Forwarded-Proto", "https")
	})
	if res.StatusCode != 200 || !strings.Contains(body, "|true|127.0.0.1|https|") {
		t.Errorf("TLS that a trusted proxy has spoken: %d %q", res.StatusCode, body)
	}
	if res, _ := untrusting.get("http://app.example.com/", func(r *http.Request) {
		r.Header.Set("X-Forwarded-Proto", "https")
	}); res.StatusCode != 308 {
		t.Errorf("an untrusted client that claims TLS: %d", res.StatusCode)
	}
}

// newProxyTestServer returns a test server that expects the PROXY protocol from proxies in the
// prefix.
func newProxyTestServer(t *testing.T, trusted string, change ...func(*Options)) *testServer {
	t.Helper()
	expectProxy := func(o *Options) {
		o.ProxyProtocol, o.TrustedProxies = true, []netip.Prefix{netip.MustParsePrefix(trusted)}
	}
	return newTestServer(t, append(change, expectProxy)...)
}

// proxyV2 returns a header of version 2 from the address and port, or from the proxy itself ("").
func proxyV2(t *testing.T, from string) string {
	t.Helper()
	h := &proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	if from != "" {
		source, dest := netip.MustParseAddrPort(from), netip.MustParseAddrPort("203.0.113.1:443")
		if source.Addr().Is6() {
			dest = netip.MustParseAddrPort("[2001:db8::9]:443")
		}
		h = proxyproto.HeaderProxyFromAddrs(2, tcpAddr(source), tcpAddr(dest))
	}
	b, err := h.Format()
	must.Succeed(t, err)
	return string(b)
}

func TestServer_ReadsPROXYProtocol(t *testing.T) {
	t.Parallel()
	w := newProxyTestServer(t, "127.0.0.0/8", func(o *Options) { o.headerTimeout = 500 * time.Millisecond })
	for name, c := range map[string]struct{ header, want string }{
		"version 1":           {"PROXY TCP4 192.0.2.1 203.0.113.1 4711 80\r\n", "|192.0.2.1|"},
		"version 1, IPv6":     {"PROXY TCP6 2001:db8::1 2001:db8::9 4711 80\r\n", "|2001:db8::1|"},
		"version 2":           {proxyV2(t, "192.0.2.1:4711"), "|192.0.2.1|"},
		"version 2, IPv6":     {proxyV2(t, "[2001:db8::1]:4711"), "|2001:db8::1|"},
		"the proxy itself":    {proxyV2(t, ""), "|127.0.0.1|"},
		"none":                {"", ""},
		"half a header":       {"PROXY TCP4 192.0.2.1", ""},
		"rubbish in a header": {"PROXY TCP4 999.0.2.1 203.0.113.1 4711 80\r\n", ""},
		"a header too long":   {"PROXY TCP4 " + strings.Repeat("1", 4096) + "\r\n", ""},
		"a signature only":    {"\r\n\r\n\x00\r\nQUIT\n", ""},
		"version 2 cut short": {proxyV2(t, "192.0.2.1:4711")[:20], ""},
		"a header, then other": {
			"PROXY TCP4 192.0.2.1 203.0.113.1 4711 80\r\nPROXY TCP4 192.0.2.2 203.0.113.1 4711 80\r\n",
			"400"},
	} {
		conn := w.dial(w.http)
		_, _ = io.WriteString(conn, c.header)
		if c.header == "" || c.want != "" {
			_, _ = io.WriteString(conn, framingtest.Closing)
		}
		all, _ := framingtest.Answers(conn)
		if got := strings.Join(all, " "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestServer_ReadsPROXYProtocolBeforeTLS checks that the header stands before TLS, not inside it.
func TestServer_ReadsPROXYProtocolBeforeTLS(t *testing.T) {
	t.Parallel()
	w := newProxyTestServer(t, "127.0.0.0/8")
	conn := w.dial(w.https)
	_, _ = io.WriteString(conn, proxyV2(t, "192.0.2.1:4711"))
	secure := tls.Client(conn, &tls.Config{ServerName: "app.example.com", RootCAs: w.roots})
	_, _ = io.WriteString(secure, strings.ReplaceAll(framingtest.Closing, "plain", "app"))
	if all, _ := framingtest.Answers(secure); len(all) != 1 || !strings.Contains(all[0], "|192.0.2.1|true|") {
		t.Errorf("over TLS: %q", all)
	}
}

func TestServer_RefusesPROXYProtocolOfUntrusted(t *testing.T) {
	t.Parallel()
	w := newProxyTestServer(t, "10.0.0.0/8")
	framingtest.Expect(t, w.dial(w.http), "PROXY TCP4 192.0.2.1 203.0.113.1 4711 80\r\n"+framingtest.Closing, "400")
	framingtest.Expect(t, w.dial(w.http), framingtest.Closing, "200")
}

func TestServer_PassesUpgrades(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, func(o *Options) {
		o.Handler = serveFunc(func(rw http.ResponseWriter, _ *http.Request, _ *account.Endpoint, _ Client) {
			c, buffered, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, buffered)
		})
	})
	const upgrade = "GET / HTTP/1.1\r\nHost: app.example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	for name, early := range map[string]string{"after the answer": "", "before it": "\n\nno HTTP \x00"} {
		conn := w.dialTLS("app.example.com", "http/1.1")
		_, _ = io.WriteString(conn, upgrade+early)
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != 101 {
			t.Fatalf("%s: %v %v", name, res, err)
		}
		_, _ = io.WriteString(conn, "ping\n\x00\xff")
		got := make([]byte, len(early)+7)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != early+"ping\n\x00\xff" {
			t.Errorf("%s: %q %v", name, got, err)
		}
		_ = conn.Close()
	}
}

// TestServer_DropsForwardingHeadersInAnySpelling checks the headers that a client sends.
func TestServer_DropsForwardingHeadersInAnySpelling(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://a.example/", nil)
	r.Header = http.Header{}
	for _, name := range []string{"Forwarded", "X-Real-IP", "x_real_ip", "X.Forwarded.For", "x-forwarded_For",
		"X~Forwarded~Client-Cert", "X-Forwarded-Port"} {
		r.Header[name] = []string{"evil"}
	}
	r.Header["X-Forward"] = []string{"kept"}
	New(Options{Logger: slog.New(slog.DiscardHandler)}).
		setForwarded(&conn{client: netip.MustParseAddrPort("192.0.2.7:4")},
			r, Client{}, "http")
	if len(r.Header) != 4 || r.Header.Get("X-Forwarded-For") != "192.0.2.7" || r.Header.Get("X-Forward") != "kept" {
		t.Errorf("left: %v", r.Header)
	}
}
