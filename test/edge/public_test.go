// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestPublic_ServesHTTPAndHTTPS(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	bound := w.Bind("public", "https://App.example.com:443/", servicetest.DescribeRequest)
	if bound.URL != "https://app.example.com" {
		t.Errorf("bound as %s", bound.URL)
	}
	w.Bind("public", "http://plain.example.com", servicetest.DescribeRequest)
	for url, want := range map[string]string{
		"https://app.example.com/x":  "app.example.com/x|127.0.0.1|https|",
		"http://plain.example.com/y": "plain.example.com/y|127.0.0.1|http|",
	} {
		if status, body := w.GetPage(url); status != 200 || body != want {
			t.Errorf("%s: %d %q", url, status, body)
		}
	}
	if status, _ := w.GetPage("http://app.example.com/x"); status != http.StatusPermanentRedirect {
		t.Errorf("http of an https endpoint: %d", status)
	}
	// an unknown host, the API's, an http endpoint's
	for _, host := range []string{"unknown.example.com", "api.example.com", "plain.example.com"} {
		_, unknown := w.GetPage("https://absent.example.com/")
		unknown = strings.ReplaceAll(unknown, "absent.example.com", host)
		if status, body := w.GetPage("https://" + host + "/endpoints"); status != 404 || body != unknown ||
			!strings.Contains(body, string(account.CodeEndpointUnknown)) {
			t.Errorf("%s: %d %q", host, status, body)
		}
	}
	large := strings.Repeat("0123456789", 1<<18)
	res, err := w.NewBrowser().Post("https://app.example.com/", "text/plain", strings.NewReader(large))
	must.Succeed(t, err)
	if got := servicetest.ReadAll(t, res.Body); !strings.HasSuffix(got, "|"+large) || res.ProtoMajor != 2 {
		t.Errorf("a large body over HTTP/%d: %d bytes back", res.ProtoMajor, len(got))
	}
	_ = res.Body.Close()
}

// TestPublic_ServesMappedPorts checks that an endpoint answers at a port that only the client sees,
// as long as no other endpoint has it.
func TestPublic_ServesMappedPorts(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	w.Bind("public", "http://app.example.com", servicetest.DescribeRequest)
	w.Bind("public", "https://secure.example.com", servicetest.DescribeRequest)
	expect := func(url, want string) { // lookups are cached for a moment
		t.Helper()
		wait.Until(t, want+" at "+url, func() bool {
			status, body := w.GetPage(url)
			return status == 200 && body == want
		})
	}
	expect("http://app.example.com:30080/x", "app.example.com:30080/x|127.0.0.1|http|")
	expect("https://secure.example.com:30443/x", "secure.example.com:30443/x|127.0.0.1|https|")
	other := w.StartAgent(tunnel.Bind{URL: "http://app.example.com:30080", Binding: "public"},
		servicetest.ServeHTTP(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "other") }))
	bound := servicetest.Receive(t, other.Bound, "bind")
	expect("http://app.example.com:30080/x", "other")
	expect("http://app.example.com:30081/x", "app.example.com:30081/x|127.0.0.1|http|")
	must.Succeed(t, other.Session().Unbind(servicetest.Context(t), bound.EndpointID))
	expect("http://app.example.com:30080/x", "app.example.com:30080/x|127.0.0.1|http|")
	if status, body := w.GetPage("http://secure.example.com:30080/"); status != http.StatusPermanentRedirect {
		t.Errorf("without TLS: %d %s", status, body)
	}
	_, body := w.GetPage("http://unknown.example.com:30080/")
	if !strings.Contains(body, "http://unknown.example.com:30080: scheme, host and port choose the endpoint") {
		t.Errorf("the page does not name the port: %s", body)
	}
}

func TestPublic_ServesWebSocketsAndStreams(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	more := make(chan struct{})
	w.Bind("public", "https://app.example.com", func(rw http.ResponseWriter, r *http.Request) {
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
		_, _ = io.WriteString(c,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, buffered)
	})
	c, err := tls.Dial("tcp", w.Addrs.HTTPS.String(), &tls.Config{ServerName: "app.example.com", RootCAs: w.Roots,
		NextProtos: []string{"http/1.1"}})
	must.Succeed(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(servicetest.MaxWait))
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
	res, err := w.NewBrowser().Get("https://app.example.com/events")
	must.Succeed(t, err)
	defer res.Body.Close()
	first := make([]byte, 9)
	// before the second is written
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "data: 1\n\n" {
		t.Errorf("%q %v", first, err)
	}
	close(more)
	if rest := servicetest.ReadAll(t, res.Body); rest != "data: 2\n\n" || res.Trailer.Get("Sum") != "42" {
		t.Errorf("%q, trailer %v", rest, res.Trailer)
	}
}

// TestPublic_ListenersServeTheirBindingOnly checks that a forwarder reaches kubernetes endpoints,
// the public edge public ones, and neither internal ones.
func TestPublic_ListenersServeTheirBindingOnly(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	bounds := map[string]tunnel.Bound{
		"public":     w.Bind("public", "http://app.example.com", servicetest.DescribeRequest),
		"internal":   w.Bind("internal", "http://app.internal", servicetest.DescribeRequest),
		"kubernetes": w.Bind("kubernetes", "http://app.demo", servicetest.DescribeRequest),
	}
	f := w.StartForwarder()
	for binding, b := range bounds {
		if binding == "kubernetes" {
			if err := f.Open(servicetest.OpenHeader(t, b)).WaitOpened(servicetest.Context(t)); err != nil {
				t.Errorf("a kubernetes endpoint: %v", err)
			}
		} else if code := f.OpenRefused(servicetest.OpenHeader(t, b)); code != tunnel.RefusedUnknownEndpoint {
			t.Errorf("a forwarder's stream to an endpoint with the %s binding: %s", binding, code)
		}
	}
	for _, host := range []string{"app.internal", "app.demo"} {
		if status, _ := w.GetPage("http://" + host + "/"); status != 404 {
			t.Errorf("%s over the public edge: %d", host, status)
		}
	}
	var list struct {
		Endpoints []account.Endpoint `json:"endpoints"`
	}
	if w.CallAPI("GET", "/endpoints?binding=kubernetes", nil, &list); len(list.Endpoints) != 1 ||
		list.Endpoints[0].ID != bounds["kubernetes"].EndpointID {
		t.Errorf("operators see %+v", list.Endpoints)
	}
	if w.CallAPI("GET", "/endpoints?binding=public&url=http%3A%2F%2Fapp.example.com", nil,
		&list); len(list.Endpoints) != 1 ||
		list.Endpoints[0].ID != bounds["public"].EndpointID {
		t.Errorf("the filter by URL gives %+v", list.Endpoints)
	}
}

// TestPublic_RevokedDomainIsNotServed checks that the endpoint is gone for clients, its live
// connections end, and the agent cannot bind it again until it is granted again.
func TestPublic_RevokedDomainIsNotServed(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	entered, cut := make(chan struct{}), make(chan error, 1)
	a := w.StartAgent(tunnel.Bind{URL: "https://app.example.com", Binding: "public", UpstreamProtocol: "http1"},
		servicetest.ServeHTTP(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hang" {
				close(entered)
				<-r.Context().Done()
			}
		}))
	first := servicetest.Receive(t, a.Bound, "bind")
	go func() {
		res, err := w.NewBrowser().Get("https://app.example.com/hang")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode >= 500 {
				err = errors.New(res.Status)
			}
		}
		cut <- err
	}()
	servicetest.Receive(t, entered, "request")
	st := w.OpenStore()
	must.Succeed(t, st.RevokeDomain(servicetest.Context(t), w.Account, "*.example.com"))
	// as the command does: a session does not notice what is granted again before it was compared
	if applied, err := st.AwaitServers(servicetest.Context(t), w.Account); err != nil || applied.Servers != 1 {
		t.Fatalf("%+v, %v", applied, err)
	}
	if err := servicetest.Receive(t, cut, "end of the request"); err == nil {
		t.Error("a request went through after the grant was revoked")
	}
	if status, _ := w.GetPage("https://app.example.com/"); status != http.StatusNotFound {
		t.Errorf("after the revocation: %d", status)
	}
	if ep, err := st.Endpoint(servicetest.Context(t), w.Account, first.EndpointID); err != nil ||
		ep.Status != account.StatusOffline {
		t.Errorf("after the revocation: %+v, %v", ep, err)
	}
	select {
	case b := <-a.Bound:
		t.Errorf("bound again without a grant: %+v", b)
	default:
	}
	if _, err := st.GrantDomain(servicetest.Context(t), w.Account, "app.example.com"); err != nil {
		t.Fatal(err)
	}
	if again := servicetest.Receive(t, a.Bound, "bind after the new grant"); again.EndpointID != first.EndpointID {
		t.Errorf("%s came back as %s", first.EndpointID, again.EndpointID)
	}
	if status, _ := w.GetPage("https://app.example.com/"); status != 200 {
		t.Errorf("after the new grant: %d", status)
	}
}

// TestPublic_Drains checks that requests under way are answered, and that their clients have to use
// another connection.
func TestPublic_Drains(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	entered, more := make(chan struct{}, 2), make(chan struct{})
	w.Bind("public", "http://plain.example.com", func(rw http.ResponseWriter, _ *http.Request) {
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
		res, err := w.NewBrowser().Get("http://plain.example.com/")
		if err != nil {
			answers <- answer{err: err}
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		answers <- answer{string(b), res.Close, err}
	}
	go ask()
	servicetest.Receive(t, entered, "request")
	w.Stop()
	for !strings.Contains(w.Log.String(), `"msg":"stopping"`) {
		time.Sleep(time.Millisecond)
	}
	go ask() // the listener is still there
	servicetest.Receive(t, entered, "request during the drain")
	close(more)
	for range 2 {
		if a := servicetest.Receive(t, answers, "answer"); a.err != nil || a.body != "whole" || !a.close {
			t.Errorf("%+v", a)
		}
	}
	if err := servicetest.Receive(t, w.Finished, "stop"); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", w.Addrs.HTTP.String()); err == nil {
		_ = c.Close()
		t.Error("the listener outlives the service")
	}
}
