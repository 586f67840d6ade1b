// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge/framing/framingtest"
)

func TestARequestGoesToTheEndpointOfItsHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for url, want := range map[string]string{
		"https://app.example.com/x":                  "200 https://app.example.com GET /x|127.0.0.1|true|127.0.0.1|https|",
		"http://plain.example.com/y":                 "200 http://plain.example.com GET /y|127.0.0.1|false|127.0.0.1|http|",
		"http://app.example.com:8080/":               "200 http://app.example.com:8080 GET /|127.0.0.1|false|127.0.0.1|http|",
		"https://APP.example.com/":                   "200 https://app.example.com GET /|127.0.0.1|true|127.0.0.1|https|",
		"https://nobody.example.com/":                "404 " + string(account.CodeEndpointUnknown) + " " + nothingHere + "\n",
		"http://nobody.example.com/":                 "404 " + string(account.CodeEndpointUnknown) + " " + nothingHere + "\n",
		"https://plain.example.com/":                 "404 " + string(account.CodeEndpointUnknown) + " " + nothingHere + "\n", // is http
		"http://localhost/":                          "404 " + string(account.CodeEndpointUnknown) + " " + nothingHere + "\n",
		"http://127.0.0.1/":                          "404 " + string(account.CodeEndpointUnknown) + " " + nothingHere + "\n",
		"http://[::1]/":                              "404 " + string(account.CodeEndpointUnknown) + " " + nothingHere + "\n",
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

// TestCertificatesByName: a name that no certificate has ends in the alert for that, and a connection serves the names of its certificate only.
func TestCertificatesByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"nobody.test", "a.b.example.com", ""} {
		err := tls.Client(w.dial(w.https), &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() //nolint:gosec // it has to fail
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, c := range map[string]struct{ sni, host, want string }{
		"its own host":                  {"app.example.com", "app.example.com", "200"},
		"another of its certificate":    {"app.example.com", "two.example.com", "200"},
		"another certificate's":         {"app.example.com", "app.other.test", "421"},
		"nobody's, of its certificate":  {"app.example.com", "nobody.example.com", "404"},
		"nobody's, of no certificate":   {"app.other.test", "app.example.com", "421"},
		"an upper-case name in the SNI": {"APP.example.com", "app.example.com", "200"},
	} {
		conn := w.dialTLS(c.sni, "http/1.1")
		framingtest.Expect(t, conn, "GET / HTTP/1.1\r\nHost: "+c.host+"\r\nConnection: close\r\n\r\n", c.want)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// h2Conn is an HTTP/2 connection whose frames are the test's own.
type h2Conn struct {
	t      *testing.T
	conn   *tls.Conn
	framer *http2.Framer
}

func (w *world) h2(name string) *h2Conn {
	w.t.Helper()
	c := w.dialTLS(name, "h2")
	_, _ = io.WriteString(c, http2.ClientPreface)
	h := &h2Conn{w.t, c, http2.NewFramer(c, c)}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = h.framer.WriteSettings()
	return h
}

// ask sends a head on the stream.
func (h *h2Conn) ask(stream uint32, end bool, fields ...string) {
	h.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	if err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: end, EndHeaders: true}); err != nil {
		h.t.Fatal(err)
	}
}

// outcome is the status of the answer on the stream, or how the stream or the connection was ended.
func (h *h2Conn) outcome(stream uint32) string {
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			return "goaway"
		}
	}
}

func TestHeadsOfHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ok := []string{":method", "GET", ":scheme", "https", ":authority", "app.example.com", ":path", "/a"}
	with := func(more ...string) []string { return append(append([]string{}, ok...), more...) }
	for name, c := range map[string]struct {
		fields []string
		want   string // or one of several
	}{
		"a good one":              {ok, "200"},
		"a host that agrees":      {with("host", "app.example.com"), "200"},
		"a host that differs":     {with("host", "two.example.com"), "400"},
		"two hosts":               {with("host", "app.example.com", "host", "app.example.com"), "400"},
		"two authorities":         {with(":authority", "two.example.com"), "reset"},
		"two paths":               {with(":path", "/b"), "reset"},
		"no path":                 {ok[:6], "reset"},
		"an empty path":           {[]string{":method", "GET", ":scheme", "https", ":authority", "app.example.com", ":path", ""}, "reset"},
		"an absolute path":        {[]string{":method", "GET", ":scheme", "https", ":authority", "app.example.com", ":path", "https://two.example.com/"}, "400 reset"},
		"an unknown pseudo":       {with(":evil", "x"), "reset"},
		"a pseudo after a header": {with("x", "y", ":path", "/b"), "reset"},
		"a pseudo of an answer":   {with(":status", "200"), "reset"},
		"an upper-case name":      {with("X-Upper", "y"), "reset goaway closed"},
		"a line in a value":       {with("x", "a\r\nhost: two.example.com"), "reset"},
		"a line in the path":      {[]string{":method", "GET", ":scheme", "https", ":authority", "app.example.com", ":path", "/a HTTP/1.1\r\nX: y"}, "400 reset"},
		"a line in the method":    {[]string{":method", "GET / HTTP/1.1\r\n", ":scheme", "https", ":authority", "app.example.com", ":path", "/a"}, "400 reset"},
		"connection":              {with("connection", "close"), "400 reset"},
		"transfer-encoding":       {with("transfer-encoding", "chunked"), "400 reset"},
		"a blank in the method":   {[]string{":method", "GET /b", ":scheme", "https", ":authority", "app.example.com", ":path", "/a"}, "400 reset"},
		"a te":                    {with("te", "gzip"), "400 reset"},
		"a te of trailers":        {with("te", "trailers"), "200"},
		"two lengths":             {with("content-length", "0", "content-length", "1"), "400"},
		"the same length twice":   {with("content-length", "0", "content-length", "0"), "400"},
		"a length without a body": {with("content-length", "3"), "400"},
		"a length of nothing":     {with("content-length", "0"), "200"},
		"a length in words":       {with("content-length", "three"), "400"},
		"upgrade":                 {with("upgrade", "h2c"), "400 reset"},
		"another authority":       {[]string{":method", "GET", ":scheme", "https", ":authority", "app.other.test", ":path", "/a"}, "421"},
		"CONNECT":                 {[]string{":method", "CONNECT", ":authority", "app.example.com:443"}, "400"},
		"an extended CONNECT":     {[]string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "app.example.com", ":path", "/"}, "400 reset"},
	} {
		h := w.h2("app.example.com")
		h.ask(1, true, c.fields...)
		if got := h.outcome(1); !strings.Contains(c.want, got) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, body := range []string{"abcd", "ab"} {
		h := w.h2("app.example.com")
		h.ask(1, false, ":method", "POST", ":scheme", "https", ":authority", "app.example.com", ":path", "/a", "content-length", "3")
		_ = h.framer.WriteData(1, true, []byte(body))
		if got := h.outcome(1); got == "200" {
			t.Errorf("a body of %d bytes whose length is stated as 3 was taken", len(body))
		}
	}
}

// TestARapidReset: streams that are opened and reset at once do not make more work than streams that stay, and end the connection.
func TestARapidReset(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int32
	release := make(chan struct{})
	w := newWorld(t, func(o *Options) {
		o.Serve = func(http.ResponseWriter, *http.Request, *account.Endpoint, Client) {
			for n := running.Add(1); ; {
				if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
					break
				}
			}
			<-release // as an upstream that does not notice that nobody waits
			running.Add(-1)
		}
	})
	h := w.h2("app.example.com")
	ended := make(chan error, 1)
	go func() {
		for {
			f, err := h.framer.ReadFrame()
			if _, away := f.(*http2.GoAwayFrame); err != nil || away {
				ended <- err
				_ = h.conn.Close() // ends a write that is under way
				return
			}
		}
	}()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0) // one block serves for all
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "app.example.com"}, {":path", "/a"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for id := uint32(1); id < 40*maxHTTP2Streams; id += 2 {
		if h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}) != nil || h.framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break
		}
	}
	if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was not ended")
	}
	if most.Load() > maxHTTP2Streams {
		t.Errorf("%d requests of one connection were served at a time", most.Load())
	}
	close(release)
}

func TestWhoTheClientIs(t *testing.T) {
	t.Parallel()
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	trusting := newWorld(t, func(o *Options) { o.TrustedProxies = local })
	strange := newWorld(t)
	for name, c := range map[string]struct {
		w       *world
		headers []string
		want    string // address, TLS, X-Forwarded-For, -Proto
	}{
		"a stranger's word":           {strange, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https", "Forwarded", "for=192.0.2.1"}, "127.0.0.1|false|127.0.0.1|http"},
		"a stranger's spelling":       {strange, []string{"X_Forwarded_For", "192.0.2.1"}, "127.0.0.1|false|127.0.0.1|http"},
		"a proxy's word":              {trusting, []string{"X-Forwarded-For", "192.0.2.1"}, "192.0.2.1|false|192.0.2.1|http"},
		"what the client made up":     {trusting, []string{"X-Forwarded-For", "6.6.6.6, 192.0.2.1"}, "192.0.2.1|false|192.0.2.1|http"},
		"two proxies":                 {trusting, []string{"X-Forwarded-For", "6.6.6.6, 192.0.2.1, 10.1.1.1"}, "192.0.2.1|false|192.0.2.1, 10.1.1.1|http"},
		"two headers":                 {trusting, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-For", "10.1.1.1"}, "192.0.2.1|false|192.0.2.1, 10.1.1.1|http"},
		"IPv6":                        {trusting, []string{"X-Forwarded-For", "2001:db8::1"}, "2001:db8::1|false|2001:db8::1|http"},
		"IPv6 with a port":            {trusting, []string{"X-Forwarded-For", "[2001:db8::1]:4711"}, "2001:db8::1|false|2001:db8::1|http"},
		"IPv4 with a port":            {trusting, []string{"X-Forwarded-For", "192.0.2.1:80"}, "192.0.2.1|false|192.0.2.1|http"},
		"nothing":                     {trusting, nil, "127.0.0.1|false|127.0.0.1|http"},
		"rubbish":                     {trusting, []string{"X-Forwarded-For", "unknown"}, "127.0.0.1|false|127.0.0.1|http"},
		"rubbish before a good one":   {trusting, []string{"X-Forwarded-For", "192.0.2.1, x, 10.1.1.1"}, "10.1.1.1|false|10.1.1.1|http"},
		"only proxies":                {trusting, []string{"X-Forwarded-For", "10.1.1.1"}, "10.1.1.1|false|10.1.1.1|http"},
		"a proxy's word, misspelt":    {trusting, []string{"X_Forwarded_For", "192.0.2.1"}, "127.0.0.1|false|127.0.0.1|http"},
		"a proxy that redirects http": {trusting, []string{"X-Forwarded-Proto", "http"}, "127.0.0.1|false|127.0.0.1|http"},
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
	res, body := trusting.get("http://app.example.com/", func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }) // TLS ends at the balancer
	if res.StatusCode != 200 || !strings.Contains(body, "|true|127.0.0.1|https|") {
		t.Errorf("TLS that a trusted proxy has spoken: %d %q", res.StatusCode, body)
	}
	if res, _ := strange.get("http://app.example.com/", func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }); res.StatusCode != 308 {
		t.Errorf("a stranger that claims TLS: %d", res.StatusCode)
	}
}

func TestPROXYProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *Options) {
		o.ProxyProtocol, o.TrustedProxies, o.headerTimeout = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, 500*time.Millisecond
	})
	v2 := func(from string) string {
		source, dest := netip.MustParseAddrPort(from), netip.MustParseAddrPort("203.0.113.1:443")
		h := proxyproto.HeaderProxyFromAddrs(2, tcpAddr(source), tcpAddr(dest))
		if source.Addr().Is6() {
			h = proxyproto.HeaderProxyFromAddrs(2, tcpAddr(source), tcpAddr(netip.MustParseAddrPort("[2001:db8::9]:443")))
		}
		b, err := h.Format()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	local, err := (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}).Format()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ header, want string }{
		"version 1":            {"PROXY TCP4 192.0.2.1 203.0.113.1 4711 80\r\n", "|192.0.2.1|"},
		"version 1, IPv6":      {"PROXY TCP6 2001:db8::1 2001:db8::9 4711 80\r\n", "|2001:db8::1|"},
		"version 2":            {v2("192.0.2.1:4711"), "|192.0.2.1|"},
		"version 2, IPv6":      {v2("[2001:db8::1]:4711"), "|2001:db8::1|"},
		"the proxy itself":     {string(local), "|127.0.0.1|"},
		"none":                 {"", ""},
		"half a header":        {"PROXY TCP4 192.0.2.1", ""},
		"rubbish in a header":  {"PROXY TCP4 999.0.2.1 203.0.113.1 4711 80\r\n", ""},
		"a header too long":    {"PROXY TCP4 " + strings.Repeat("1", 4096) + "\r\n", ""},
		"a signature only":     {"\r\n\r\n\x00\r\nQUIT\n", ""},
		"version 2 cut short":  {v2("192.0.2.1:4711")[:20], ""},
		"a header, then other": {"PROXY TCP4 192.0.2.1 203.0.113.1 4711 80\r\nPROXY TCP4 192.0.2.2 203.0.113.1 4711 80\r\n", "400"},
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
	conn := w.dial(w.https) // before TLS, not inside
	_, _ = io.WriteString(conn, v2("192.0.2.1:4711"))
	secure := tls.Client(conn, &tls.Config{ServerName: "app.example.com", RootCAs: w.roots})
	_, _ = io.WriteString(secure, strings.ReplaceAll(framingtest.Closing, "plain", "app"))
	if all, _ := framingtest.Answers(secure); len(all) != 1 || !strings.Contains(all[0], "|192.0.2.1|true|") {
		t.Errorf("over TLS: %q", all)
	}
	distrustful := newWorld(t, func(o *Options) {
		o.ProxyProtocol, o.TrustedProxies = true, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	framingtest.Expect(t, distrustful.dial(distrustful.http), "PROXY TCP4 192.0.2.1 203.0.113.1 4711 80\r\n"+framingtest.Closing, "400")
	framingtest.Expect(t, distrustful.dial(distrustful.http), framingtest.Closing, "200")
}

func TestAnUpgradeIsPassedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *Options) {
		o.Serve = func(rw http.ResponseWriter, _ *http.Request, _ *account.Endpoint, _ Client) {
			c, buffered, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, buffered)
		}
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

// What a client says of hops before us goes, however it is spelled.
func TestOtherSpellingsOfForwarded(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://a.example/", nil)
	r.Header = http.Header{}
	for _, name := range []string{"Forwarded", "X-Real-IP", "x_real_ip", "X.Forwarded.For", "x-forwarded_For", "X~Forwarded~Client-Cert", "X-Forwarded-Port"} {
		r.Header[name] = []string{"evil"}
	}
	r.Header["X-Forward"] = []string{"kept"}
	New(Options{Logger: slog.New(slog.DiscardHandler)}).setForwarded(&conn{client: netip.MustParseAddrPort("192.0.2.7:4")}, r, Client{}, "http")
	if len(r.Header) != 4 || r.Header.Get("X-Forwarded-For") != "192.0.2.7" || r.Header.Get("X-Forward") != "kept" {
		t.Errorf("left: %v", r.Header)
	}
}
