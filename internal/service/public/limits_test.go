// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// beginRequest sends a request and returns its connection once the answer has begun.
func beginRequest(t *testing.T, w *testServer, header string) io.Closer {
	t.Helper()
	c := w.dial(w.http)
	_, _ = io.WriteString(c, header+"GET /held HTTP/1.1\r\n"+framingtest.Host+"\r\n")
	b := make([]byte, 1)
	if _, err := c.Read(b); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConnLimiter_LimitsPerClient checks that connections beyond the limit are closed, and that
// there is room again when one has ended.
func TestConnLimiter_LimitsPerClient(t *testing.T) {
	t.Parallel()
	served := func(w *testServer, header string) bool {
		c := w.dial(w.http)
		_, _ = io.WriteString(c, header+framingtest.Closing)
		all, _ := framingtest.Answers(c)
		return len(all) == 1
	}
	again := func(w *testServer, header string) {
		t.Helper()
		for end := time.Now().Add(maxWait); !served(w, header); {
			if time.Now().After(end) {
				t.Fatal("a client whose connections have ended is still refused")
			}
		}
	}
	w := newTestServer(t, func(o *Options) { o.MaxConnsPerClient = 2 })
	first := beginRequest(t, w, "")
	beginRequest(t, w, "")
	if served(w, "") || !strings.Contains(w.log.String(), "a client has too many") {
		t.Errorf("a third connection of a client that may have two was served; log:\n%s", w.log)
	}
	_ = first.Close()
	again(w, "")

	all := newTestServer(t, func(o *Options) { o.MaxConns = 2 })
	first = beginRequest(t, all, "")
	beginRequest(t, all, "")
	if served(all, "") || !strings.Contains(all.log.String(), "there are too many") {
		t.Error("a third connection was served where there may be two")
	}
	_ = first.Close()
	again(all, "")

	// A proxy has many clients: counted is whom its header names.
	proxied := newTestServer(t, func(o *Options) {
		o.MaxConnsPerClient, o.ProxyProtocol, o.TrustedProxies = 1, true,
			[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	from := func(ip string) string { return "PROXY TCP4 " + ip + " 203.0.113.1 4711 80\r\n" }
	beginRequest(t, proxied, from("192.0.2.1"))
	beginRequest(t, proxied, from("192.0.2.2"))
	if served(proxied, from("192.0.2.1")) || !served(proxied, from("192.0.2.3")) {
		t.Error("clients behind a proxy are not told apart")
	}
	trusted := newTestServer(t, func(o *Options) {
		o.MaxConnsPerClient, o.TrustedProxies = 1, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	beginRequest(t, trusted, "")
	if !served(trusted, "") {
		t.Error("a trusted proxy is counted as one client")
	}
}

// TestServer_ClosesSlowClients checks a head that does not end, the first of a connection or a
// later one, and a handshake that does not begin.
func TestServer_ClosesSlowClients(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, func(o *Options) { o.headerTimeout = 300 * time.Millisecond })
	for name, send := range map[string]string{
		"nothing": "", "half a head": "GET / HTTP/1.1\r\nHost: pl",
		"half of a second head": "GET / HTTP/1.1\r\n" + framingtest.Host + "\r\nGET / HTTP/1.1\r\nHost",
	} {
		c := w.dial(w.http)
		_, _ = io.WriteString(c, send)
		if all, err := framingtest.Answers(c); errors.Is(err, os.ErrDeadlineExceeded) || len(all) > 1 {
			t.Errorf("%s: %q %v", name, all, err)
		}
		c = w.dial(w.https)
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection without a handshake lives on")
		}
	}
	drip := w.dial(w.http) // one byte at a time does not help
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(drip, "GET / HTTP/1.1\r\n")
		for {
			time.Sleep(10 * time.Millisecond)
			if _, err := io.WriteString(drip, "X: y\r\n"); err != nil {
				return
			}
		}
	}()
	if all, err := framingtest.Answers(drip); errors.Is(err, os.ErrDeadlineExceeded) || len(all) > 0 {
		t.Errorf("a head that drips: %q %v", all, err)
	}
	_ = drip.Close()
	<-sent
}

// TestServer_ShutsDown checks that requests under way are answered, HTTP/2 connections get GOAWAY,
// idle ones are closed, and none is left.
func TestServer_ShutsDown(t *testing.T) {
	t.Parallel()
	entered, more := make(chan struct{}), make(chan struct{})
	w := newTestServer(t, func(o *Options) {
		o.Handler = serveFunc(func(rw http.ResponseWriter, r *http.Request, _ *account.Endpoint, _ Client) {
			if r.URL.Path == "/wait" {
				close(entered)
				<-more
			}
			_, _ = io.WriteString(rw, "done")
		})
	})
	idle := w.dial(w.http)
	_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\n"+framingtest.Host+"\r\n")
	answers := bufio.NewReader(idle)
	if res, err := http.ReadResponse(answers, nil); err != nil || text(t, res) != "done" {
		t.Fatalf("a request before the shutdown: %v %v", res, err)
	}
	h := w.h2("app.example.com")
	h.sendHead(1, true, ":method", "GET", ":scheme", "https", ":authority", "app.example.com", ":path", "/wait")
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- w.edge.Shutdown(ctx) }()
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: %v", err)
	}
	away, body := false, ""
	for !away || body == "" {
		f, err := h.framer.ReadFrame()
		if err != nil {
			t.Fatalf("the connection ended with %v before its answer (GOAWAY %t, body %q)", err, away, body)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if !away { // only then, so that the request is surely one that Shutdown finds
				close(more)
			}
			away = true
		case *http2.DataFrame:
			body += string(f.Data())
		}
	}
	if body != "done" {
		t.Errorf("the answer under way is %q", body)
	}
	_ = h.conn.Close()
	if err := <-stopped; err != nil || w.edge.Live() != 0 {
		t.Errorf("%v, live %d", err, w.edge.Live())
	}
}

// TestServer_EndsRequestsOfRevokedGrants covers upgraded connections and requests to other hosts.
func TestServer_EndsRequestsOfRevokedGrants(t *testing.T) {
	t.Parallel()
	var revoked atomic.Value // the host
	revoked.Store("")
	entered, ended := make(chan string, 2), make(chan string, 2)
	w := newTestServer(t, func(o *Options) {
		o.Endpoints = testEndpoints{granted: func(host string) bool { return host != revoked.Load() }}
		o.Handler = serveFunc(func(_ http.ResponseWriter, r *http.Request, ep *account.Endpoint, _ Client) {
			entered <- ep.Host
			<-r.Context().Done()
			ended <- ep.Host
		})
	})
	for _, h := range []string{"app.example.com", "two.example.com"} {
		conn := w.h2(h)
		conn.sendHead(1, true, ":method", "GET", ":scheme", "https", ":authority", h, ":path", "/")
		<-entered
	}
	revoked.Store("two.example.com")
	if got := <-ended; got != "two.example.com" {
		t.Errorf("a request to %s was ended", got)
	}
	if live := w.edge.grants.hosts()[""]; !slices.Contains(live, "app.example.com") {
		t.Errorf("live are %q", live)
	}
}

func TestCertificates_FollowTheirFiles(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	dir := t.TempDir()
	w.issue(dir, "one", time.Hour, "one.test")
	certs, err := OpenCertificates([]CertFiles{{Cert: dir}}, w.logger())
	must.Succeed(t, err)
	covers := func(want string) {
		t.Helper()
		certs.refresh(time.Now())
		if got := strings.Join(certs.current.Load().names(), " "); got != want {
			t.Errorf("names %q, want %q", got, want)
		}
	}
	w.issue(dir, "two", time.Hour, "*.two.test")
	covers("*.two.test one.test")
	good, err := os.ReadFile(filepath.Join(dir, "two.crt"))
	must.Succeed(t, err)
	w.issue(dir, "two", time.Hour, "*.new.test")
	key := filepath.Join(dir, "two.key")
	write(t, filepath.Join(dir, "two.crt"), good) // the old certificate with the new key: a pair that is half replaced
	covers("*.two.test one.test")
	covers("*.two.test one.test")
	if logged := strings.Count(w.log.String(), "could not be reloaded"); logged != 1 {
		t.Errorf("a pair that does not fit was logged %d times", logged)
	}
	must.Succeed(t, os.Remove(key))
	covers("*.two.test one.test") // still in service
	w.issue(dir, "two", time.Hour, "*.new.test")
	covers("*.new.test one.test")
	for _, name := range []string{"two.crt", "two.key"} {
		must.Succeed(t, os.Remove(filepath.Join(dir, name)))
	}
	covers("one.test")
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "secret"), 0o700))
	w.issue(filepath.Join(dir, "secret"), "tls", time.Hour, "three.test")
	covers("one.test three.test")
	must.Succeed(t, os.Rename(dir, dir+".away"))
	covers("one.test three.test")
}

// TestCertificates_PreferTheLatestExpiry checks that a renewed certificate is preferred to the old
// one beside it, and that an expired one is logged.
func TestCertificates_PreferTheLatestExpiry(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	dir := t.TempDir()
	w.issue(dir, "a", -time.Hour, "x.test")
	if _, err := OpenCertificates([]CertFiles{{Cert: dir}}, w.logger()); err != nil ||
		!strings.Contains(w.log.String(), "has expired") {
		t.Fatalf("%v; log:\n%s", err, w.log)
	}
	w.issue(dir, "b", 48*time.Hour, "x.test", "y.test")
	w.issue(dir, "c", 24*time.Hour, "x.test")
	certs, err := OpenCertificates([]CertFiles{{Cert: dir}}, w.logger())
	must.Succeed(t, err)
	if got := certs.current.Load().forHost("x.test")[0].Leaf.Subject.CommonName; got != "b" {
		t.Errorf("certificate %s", got)
	}
	if left := time.Until(certs.FirstExpiry()); left < 47*time.Hour || left > 48*time.Hour {
		t.Errorf("the first name is without a certificate in %v", left)
	}
	w.issue(dir, "d", 12*time.Hour, "z.test")
	certs.refresh(time.Now())
	if left := time.Until(certs.FirstExpiry()); left > 12*time.Hour {
		t.Errorf("with a name that has another certificate: in %v", left)
	}
	if !certs.coversBoth("x.test", "y.test") || certs.coversBoth("x.test", "q.test") ||
		certs.coversBoth("q.test", "x.test") {
		t.Error("which hosts a connection covers")
	}
}

func TestOpenCertificates_NamesBadFiles(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	dir, empty := t.TempDir(), t.TempDir()
	w.issue(dir, "a", time.Hour, "a.test")
	w.issue(dir, "b", time.Hour, "b.test")
	w.issue(dir, "nameless", time.Hour)
	write(t, filepath.Join(dir, "rubbish.pem"), []byte("no PEM"))
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, c := range map[string]struct {
		files CertFiles
		want  string
	}{
		"no certificate":  {CertFiles{at("none.crt"), at("a.key")}, "none.crt"},
		"no key":          {CertFiles{at("a.crt"), at("none.key")}, "none.key"},
		"another's key":   {CertFiles{at("a.crt"), at("b.key")}, "b.key"},
		"no PEM":          {CertFiles{at("rubbish.pem"), at("a.key")}, "rubbish.pem"},
		"no name":         {CertFiles{at("nameless.crt"), at("nameless.key")}, "no DNS name"},
		"nothing there":   {CertFiles{Cert: empty}, "holds no"},
		"no directory":    {CertFiles{Cert: at("gone")}, "gone"},
		"swapped by hand": {CertFiles{at("a.key"), at("a.crt")}, "a.key"},
	} {
		if _, err := OpenCertificates([]CertFiles{c.files}, w.logger()); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not name %s", name, err, c.want)
		}
	}
}

func TestCertificates_EndingSoon(t *testing.T) {
	t.Parallel()
	w, dir := newTestServer(t), t.TempDir()
	w.issue(dir, "soon", 3*24*time.Hour, "soon.example.com")
	w.issue(dir, "later", 30*24*time.Hour, "*.example.com")
	w.issue(dir, "over", -time.Hour, "over.example.com")
	certs, err := OpenCertificates([]CertFiles{{Cert: dir}}, w.logger())
	must.Succeed(t, err)
	now := time.Now()
	for host, want := range map[string]bool{"soon.example.com": false, // it lives for 4 days only
		"a.example.com": false, "over.example.com": true, "other.test": false} {
		if got := certs.EndingSoon(host, now) != nil; got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
	if certs.EndingSoon("a.example.com", now.Add(24*24*time.Hour)) == nil {
		t.Error("one that ends in 6 days is not told")
	}
}
