// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestPublic_ServesHTTPAndHTTPS(t *testing.T) {
	t.Parallel()
	w := startPublic(t)
	bound := w.bind("public", "https://App.example.com:443/", hello)
	if bound.URL != "https://app.example.com" {
		t.Errorf("bound as %s", bound.URL)
	}
	w.bind("public", "http://plain.example.com", hello)
	for url, want := range map[string]string{
		"https://app.example.com/x":  "app.example.com/x|127.0.0.1|https|",
		"http://plain.example.com/y": "plain.example.com/y|127.0.0.1|http|",
	} {
		if status, body := w.getPage(url); status != 200 || body != want {
			t.Errorf("%s: %d %q", url, status, body)
		}
	}
	if status, _ := w.getPage("http://app.example.com/x"); status != http.StatusPermanentRedirect {
		t.Errorf("http of an https endpoint: %d", status)
	}
	_, unknown := w.getPage("https://nobody.example.com/")
	// the API's host; an http endpoint
	for _, url := range []string{"https://api.example.com/", "https://api.example.com/endpoints",
		"https://plain.example.com/"} {
		if status, body := w.getPage(url); status != 404 || body != unknown ||
			!strings.Contains(body, string(account.CodeEndpointUnknown)) {
			t.Errorf("%s: %d %q", url, status, body)
		}
	}
	large := strings.Repeat("0123456789", 1<<18)
	res, err := w.newBrowser().Post("https://app.example.com/", "text/plain", strings.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, res.Body); !strings.HasSuffix(got, "|"+large) || res.ProtoMajor != 2 {
		t.Errorf("a large body over HTTP/%d: %d bytes back", res.ProtoMajor, len(got))
	}
	_ = res.Body.Close()
}

func TestPublic_ServesWebSocketsAndStreams(t *testing.T) {
	t.Parallel()
	w := startPublic(t)
	more := make(chan struct{})
	w.bind("public", "https://app.example.com", func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		if r.Header.Get("Upgrade") == "" {
			rw.Header().Set("Trailer", "Sum")
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(rw, "data: 1\n\n")
			_ = rc.Flush()
			<-more
			_, _ = io.WriteString(rw, "data: 2\n\n")
			rw.Header().Set("Sum", "42")
			return
		}
		c, buffered, err := rc.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, buffered)
	})
	c, err := tls.Dial("tcp", w.addrs.HTTPS.String(), &tls.Config{ServerName: "app.example.com", RootCAs: w.roots,
		NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c,
		"GET /chat HTTP/1.1\r\nHost: app.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%v %v", res, err)
	}
	_, _ = io.WriteString(c, "\x81\x00\npong\n")
	echoed := make([]byte, 8)
	if _, err := io.ReadFull(r, echoed); err != nil || string(echoed) != "\x81\x00\npong\n" {
		t.Errorf("%q %v", echoed, err)
	}
	res, err := w.newBrowser().Get("https://app.example.com/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 9)
	// before the second is written
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "data: 1\n\n" {
		t.Errorf("%q %v", first, err)
	}
	close(more)
	if rest := readAll(t, res.Body); rest != "data: 2\n\n" || res.Trailer.Get("Sum") != "42" {
		t.Errorf("%q, trailer %v", rest, res.Trailer)
	}
}

// TestPublic_ListenersServeTheirBindingOnly: a forwarder reaches kubernetes endpoints, the public
// edge public ones, and neither internal ones.
func TestPublic_ListenersServeTheirBindingOnly(t *testing.T) {
	t.Parallel()
	w := startPublic(t)
	bounds := map[string]tunnel.Bound{
		"public":     w.bind("public", "http://app.example.com", hello),
		"internal":   w.bind("internal", "http://app.internal", hello),
		"kubernetes": w.bind("kubernetes", "http://app.demo", hello),
	}
	f := w.startForwarder()
	for binding, b := range bounds {
		if binding == "kubernetes" {
			if err := f.open(openHeader(t, b)).WaitOpened(testContext(t)); err != nil {
				t.Errorf("a kubernetes endpoint: %v", err)
			}
		} else if code := f.openRefused(openHeader(t, b)); code != tunnel.RefusedUnknownEndpoint {
			t.Errorf("a forwarder's stream to an endpoint with the %s binding: %s", binding, code)
		}
	}
	for _, host := range []string{"app.internal", "app.demo"} {
		if status, _ := w.getPage("http://" + host + "/"); status != 404 {
			t.Errorf("%s over the public edge: %d", host, status)
		}
	}
	var list struct {
		Endpoints []account.Endpoint `json:"endpoints"`
	}
	if w.callAPI("GET", "/endpoints?binding=kubernetes", nil, &list); len(list.Endpoints) != 1 ||
		list.Endpoints[0].ID != bounds["kubernetes"].EndpointID {
		t.Errorf("operators see %+v", list.Endpoints)
	}
	if w.callAPI("GET", "/endpoints?binding=public&url=http%3A%2F%2Fapp.example.com", nil,
		&list); len(list.Endpoints) != 1 ||
		list.Endpoints[0].ID != bounds["public"].EndpointID {
		t.Errorf("the filter by URL gives %+v", list.Endpoints)
	}
}

// TestPublic_RevokedDomainIsNotServed: the endpoint is gone for clients, its live connections end,
// and the agent cannot bind it again until it is granted again.
func TestPublic_RevokedDomainIsNotServed(t *testing.T) {
	t.Parallel()
	w := startPublic(t)
	entered, cut := make(chan struct{}), make(chan error, 1)
	a := w.startAgent(tunnel.Bind{URL: "https://app.example.com", Binding: "public", UpstreamProtocol: "http1"},
		serve(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hang" {
				close(entered)
				<-r.Context().Done()
			}
		}))
	first := receive(t, a.bound, "bind")
	go func() {
		res, err := w.newBrowser().Get("https://app.example.com/hang")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode >= 500 {
				err = errors.New(res.Status)
			}
		}
		cut <- err
	}()
	receive(t, entered, "request")
	st := w.openStore()
	if err := st.RevokeDomain(testContext(t), w.account, "*.example.com"); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, cut, "end of the request"); err == nil {
		t.Error("a request went through after the grant was revoked")
	}
	unbound := func() bool { // the session looks at its grants every second, and misses what is granted again in between
		ep, err := st.Endpoint(testContext(t), w.account, first.EndpointID)
		return err == nil && ep.Status == account.StatusOffline
	}
	for status, end := 200, time.Now().Add(patience); status != 404 ||
		!unbound(); status, _ = w.getPage("https://app.example.com/") {
		if time.Now().After(end) {
			t.Fatalf("the endpoint still answers %d, or is bound", status)
		}
	}
	select {
	case b := <-a.bound:
		t.Errorf("bound again without a grant: %+v", b)
	default:
	}
	if _, err := st.GrantDomain(testContext(t), w.account, "app.example.com"); err != nil {
		t.Fatal(err)
	}
	if again := receive(t, a.bound, "bind after the new grant"); again.EndpointID != first.EndpointID {
		t.Errorf("%s came back as %s", first.EndpointID, again.EndpointID)
	}
	if status, _ := w.getPage("https://app.example.com/"); status != 200 {
		t.Errorf("after the new grant: %d", status)
	}
}

// TestPublic_Drains: what is under way is answered, and told to come back over another
// connection.
func TestPublic_Drains(t *testing.T) {
	t.Parallel()
	w := startPublic(t)
	entered, more := make(chan struct{}, 2), make(chan struct{})
	w.bind("public", "http://plain.example.com", func(rw http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-more
		_, _ = io.WriteString(rw, "whole")
	})
	type answer struct {
		body  string
		close bool
		err   error
	}
	answers := make(chan answer, 2)
	ask := func() {
		res, err := w.newBrowser().Get("http://plain.example.com/")
		if err != nil {
			answers <- answer{err: err}
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		answers <- answer{string(b), res.Close, err}
	}
	go ask()
	receive(t, entered, "request")
	w.stop()
	for !strings.Contains(w.log.String(), `"msg":"stopping"`) {
		time.Sleep(time.Millisecond)
	}
	go ask() // the listener is still there
	receive(t, entered, "request during the drain")
	close(more)
	for range 2 {
		if a := receive(t, answers, "answer"); a.err != nil || a.body != "whole" || !a.close {
			t.Errorf("%+v", a)
		}
	}
	if err := receive(t, w.finished, "stop"); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", w.addrs.HTTP.String()); err == nil {
		_ = c.Close()
		t.Error("the listener outlives the service")
	}
}

func TestPublicOptions_RefusesContradictions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issueCertificate(t, dir, "a.test")
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, c := range map[string]struct {
		o    PublicOptions
		want string // "" = nothing is wrong
	}{
		"none":  {PublicOptions{}, ""},
		"http":  {PublicOptions{HTTPAddr: ":80"}, ""},
		"https": {PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{cert}, TLSKeys: []string{key}}, ""},
		"a directory": {PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{dir, cert}, TLSKeys: []string{key}},
			""},
		"https, no certificate": {PublicOptions{HTTPSAddr: ":443"}, "--public-tls-cert"},
		"no key": {PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{cert, cert}, TLSKeys: []string{key}},
			"--public-tls-key"},
		"a key for a directory": {PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{dir}, TLSKeys: []string{key}},
			"no --public-tls-cert for it"},
		"certificates, no https": {PublicOptions{HTTPAddr: ":80", TLSCerts: []string{cert}, TLSKeys: []string{key}},
			"--public-https-addr"},
		"bad address": {PublicOptions{HTTPAddr: "80"}, "--public-http-addr"},
		"bad proxies": {PublicOptions{HTTPAddr: ":80", TrustedProxies: []string{"10.0.0.0/33"}},
			"--trusted-proxies"},
		"nobody to trust":          {PublicOptions{HTTPAddr: ":80", ProxyProtocol: true}, "--trusted-proxies"},
		"proxies of the dashboard": {PublicOptions{TrustedProxies: []string{"10.0.0.1", "fd00::/8"}}, ""},
		"their header, no edge": {PublicOptions{TrustedProxies: []string{"10.0.0.1"}, ProxyProtocol: true},
			"--public-http-addr"},
		"less than no connection": {PublicOptions{HTTPAddr: ":80", MaxConns: -1}, "--public-max-connections"},
	} {
		var broken []account.FieldError
		c.o.validate(func(err error) { broken = append(broken, account.FieldsOf(err)...) })
		if c.want == "" && len(broken) > 0 || c.want != "" &&
			(len(broken) != 1 || !strings.Contains(broken[0].String(), c.want)) {
			t.Errorf("%s: %v, want %q", name, broken, c.want)
		}
	}
}
