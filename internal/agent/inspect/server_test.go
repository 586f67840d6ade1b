// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestListen_TakesNextPort(t *testing.T) {
	t.Parallel()
	first, err := Listen(t.Context(), "127.0.0.1:0", true)
	must.Succeed(t, err)
	defer func() { _ = first.Close() }()
	taken := first.Addr().String()
	second, err := Listen(t.Context(), taken, true)
	must.Succeed(t, err)
	defer func() { _ = second.Close() }()
	if a, b := first.Addr().(*net.TCPAddr), second.Addr().(*net.TCPAddr); b.Port <= a.Port || !b.IP.IsLoopback() {
		t.Errorf("got %s after %s", b, a)
	}
	if _, err := Listen(t.Context(), taken, false); err == nil || !strings.Contains(err.Error(), "the port is in use") {
		t.Errorf("got %v", err)
	}
	for _, address := range []string{"", "4040", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"} {
		if _, err := Listen(t.Context(), address, true); err == nil ||
			!strings.Contains(err.Error(), "must be HOST:PORT") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestServer_EndsWithClose(t *testing.T) {
	t.Parallel()
	ln, err := Listen(t.Context(), "127.0.0.1:0", false)
	must.Succeed(t, err)
	streaming := make(chan struct{})
	s := Serve(ln, newRecorder(t), ServerOptions{Pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(streaming)
		<-r.Context().Done()
	})})
	res, err := http.Get(s.URL() + "/live")
	must.Succeed(t, err)
	<-streaming
	s.Close()
	_, _ = io.ReadAll(res.Body)
	_ = res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}

// handler returns a handler that listens at an address, with a page.
func handler(t *testing.T, r *Recorder, ip string) http.Handler {
	t.Helper()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	return NewHandler(r, &net.TCPAddr{IP: net.ParseIP(ip), Port: 4040}, ServerOptions{Pages: page, Host: "dev.lan"})
}

func serve(h http.Handler, method, target, host, body string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Host = host
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestServer_ChecksHost(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	for _, c := range []struct {
		listen, host string
		admitted     bool
	}{
		{"127.0.0.1", "127.0.0.1:4040", true}, {"127.0.0.1", "localhost:4040", true}, {"127.0.0.1", "LOCALHOST", true},
		{"127.0.0.1", "[::1]:4040", true}, {"127.0.0.1", "127.9.9.9", true}, {"127.0.0.1", "dev.lan:9000", true},
		{"127.0.0.1", "evil.example:4040", false}, {"127.0.0.1", "localhost.evil.example:4040", false},
		{"127.0.0.1", "127.0.0.1.nip.io:4040", false}, {"127.0.0.1", "10.0.0.7:4040", false}, {"127.0.0.1", "", false},
		{"127.0.0.1", "localhost:4040@evil.example", false}, {"0.0.0.0", "10.0.0.7:4040", true},
		{"0.0.0.0", "evil.example:4040", false}, {"::", "[fd00::7]:4040", true},
	} {
		for _, target := range []string{"/", "/api/requests/http", "/api/tunnels"} {
			w := serve(handler(t, r, c.listen), "GET", target, c.host, "")
			if admitted := w.Code == http.StatusOK; admitted != c.admitted {
				t.Errorf("%s %s on %s: %d", c.host, target, c.listen, w.Code)
			}
			if w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("Access-Control-Allow-Origin") != "" ||
				w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: header %v", target, w.Header())
			}
		}
	}
}

func TestServer_RefusesOtherOrigins(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	h := handler(t, r, "127.0.0.1")
	const host = "127.0.0.1:4040"
	for _, c := range []struct {
		method, target string
		header         []string
		refused        bool
	}{
		{"DELETE", "/api/requests/http", nil, false},
		{"DELETE", "/api/requests/http", []string{"Origin", "http://" + host}, false},
		{"DELETE", "/api/requests/http", []string{"Sec-Fetch-Site", "same-origin"}, false},
		{"DELETE", "/api/requests/http", []string{"Origin", "http://evil.example"}, true},
		{"DELETE", "/api/requests/http", []string{"Origin", "null"}, true},
		{"DELETE", "/api/requests/http", []string{"Origin", "http://127.0.0.1:3000"}, true},
		{"DELETE", "/api/requests/http", []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"POST", "/clear", []string{"Sec-Fetch-Site", "same-site"}, true},
		{"POST", "/clear", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"}, true},
		{"GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"}, false},
		{"GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
			true},
		{"GET", "/api/requests/http", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, true},
		{"GET", "/api/requests/http", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, true},
		{"GET", "/api/requests/http", []string{"Sec-Fetch-Site", "none"}, false},
	} {
		w := serve(h, c.method, c.target, host, "", c.header...)
		if refused := w.Code == http.StatusForbidden; refused != c.refused {
			t.Errorf("%s %s %v: %d", c.method, c.target, c.header, w.Code)
		}
	}
}

// recordSecrets records an exchange with a secret in every place, and returns its id.
func recordSecrets(t *testing.T, r *Recorder, upstream string) string {
	t.Helper()
	form := "user=ann&password=" + planted
	return recordOne(t, r, upstream,
		fmt.Sprintf("POST /login?token=%s HTTP/1.1\r\nHost: a\r\nAuthorization: Basic %[1]s\r\n"+
			"Cookie: sid=%[1]s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s",
			planted,
			len(form), form), fmt.Sprintf("HTTP/1.1 302 Found\r\nSet-Cookie: sid=%s\r\nLocation: /?code=%[1]s\r\n"+
			"Content-Type: application/json\r\n\r\n{\"access_token\":\"%[1]s\",\"kept\":1}", planted))
}

func TestServer_MasksSecrets(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	id := recordSecrets(t, r, "127.0.0.1:1")
	h := handler(t, r, "127.0.0.1")
	shown := func(method, target, body string) string {
		w := serve(h, method, target, "localhost", body)
		text := w.Body.String() + fmt.Sprint(w.Header())
		for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '"' }) {
			if decoded, err := base64.StdEncoding.DecodeString(word); err == nil {
				text += string(decoded)
			}
		}
		return text
	}
	for _, target := range []string{"", "?text=" + planted, "/" + id} {
		text := shown("GET", requestsPath+target, "")
		if strings.Contains(text, planted) || !strings.Contains(text, Masked) {
			t.Errorf("%s shows %s", target, text)
		}
	}
	text := shown("POST", requestsPath, fmt.Sprintf(`{"id":%q}`, id)) // nothing listens there
	if strings.Contains(text, planted) || !strings.Contains(text, "502") {
		t.Errorf("a failed replay shows %s", text)
	}
	if text := shown("GET", requestsPath+"?limit=1", ""); strings.Contains(text, planted) ||
		!strings.Contains(text, id) {
		t.Errorf("the exchange of the failed replay shows %s", text)
	}
	if text := shown("GET", requestsPath+"/"+id+"?unmasked=true", ""); strings.Count(text, planted) < 12 {
		t.Errorf("unmasked shows %s", text)
	}
}

// TestServer_BodiesThatLie checks that what an encoding hides, or claims to, is not shown by default.
func TestServer_BodiesThatLie(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"gzip", "br", "x", "GZIP, identity"} {
		r := newRecorder(t)
		id := recordOne(t, r, "127.0.0.1:1", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: %s\r\n\r\n"+
				"Your password is %s", encoding, planted))
		h := handler(t, r, "127.0.0.1")
		for query, want := range map[string]bool{"": false, "?unmasked=true": true} {
			var e exchangeJSON
			w := serve(h, "GET", requestsPath+"/"+id+query, "localhost", "")
			must.Succeed(t, json.Unmarshal(w.Body.Bytes(), &e))
			if got := strings.Contains(string(e.Response.Raw), planted); got != want || e.Response.BodySize == 0 {
				t.Errorf("%s%s shows %s", encoding, query, e.Response.Raw)
			}
		}
	}
}

func TestServer_HasFormOfOtherAgents(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(upstream.Close)
	r := newRecorder(t)
	r.SetEndpoint(Endpoint{ID: "ep-1", URL: "http://api.demo", Name: "web", Upstream: "http://localhost:8080",
		Online: true})
	r.SetEndpoint(Endpoint{ID: "ep-2", URL: "http://off.demo"})
	id := recordOne(t, r, upstream.Listener.Addr().String(), sentRequest,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	h := handler(t, r, "127.0.0.1")
	get := func(target string, into any) {
		t.Helper()
		w := serve(h, "GET", target, "localhost", "")
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %v: %s", target, err, w.Body)
		}
	}
	var tunnels struct {
		Tunnels []tunnelJSON
		URI     string
	}
	get(tunnelsPath, &tunnels)
	if len(tunnels.Tunnels) != 1 || tunnels.Tunnels[0].Name != "web" ||
		tunnels.Tunnels[0].PublicURL != "http://api.demo" ||
		tunnels.Tunnels[0].Config.Addr != "http://localhost:8080" || tunnels.Tunnels[0].Metrics.HTTP.Count != 1 ||
		tunnels.URI != tunnelsPath {
		t.Errorf("%+v", tunnels)
	}
	var tunnel tunnelJSON
	if get(tunnels.Tunnels[0].URI, &tunnel); tunnel.ID != "ep-1" {
		t.Errorf("%s has %+v", tunnels.Tunnels[0].URI, tunnel)
	}
	var list struct{ Requests []exchangeJSON }
	get(requestsPath+"?limit=10&tunnel_name=web", &list)
	if len(list.Requests) != 1 || list.Requests[0].URI != requestsPath+"/"+id || list.Requests[0].TunnelName != "web" ||
		list.Requests[0].Response.Status != "200 OK" || list.Requests[0].Request.URI != "/a%2Fb?c=d" {
		t.Errorf("%+v", list)
	}
	get(requestsPath+"?tunnel_name=other", &list)
	var one exchangeJSON
	get(requestsPath+"/"+id+"?unmasked=true", &one)
	if !bytes.HasPrefix(one.Request.Raw, []byte("POST /a%2Fb?c=d HTTP/1.1\r\nAuthorization: Bearer secret\r\n")) ||
		!bytes.HasSuffix(one.Request.Raw, []byte("\r\n\r\nbody")) || one.Caller.Pod != "web-1" {
		t.Errorf("%s", one.Request.Raw)
	}
	w := serve(h, "POST", requestsPath, "localhost", fmt.Sprintf(`{"id":%q,"tunnel_name":"web","body":"new"}`, id))
	var again exchangeJSON
	get(w.Header().Get("Location"), &again)
	if w.Code != http.StatusNoContent || again.ReplayOf != id || !bytes.HasSuffix(again.Response.Raw, []byte(" new")) {
		t.Errorf("%d, %s", w.Code, again.Response.Raw)
	}
	if w := serve(h, "DELETE", requestsPath, "localhost", ""); w.Code != http.StatusNoContent ||
		len(r.List(Filter{})) > 0 {
		t.Errorf("%d after DELETE", w.Code)
	}
}

func TestServer_RefusesBadInput(t *testing.T) {
	t.Parallel()
	h := handler(t, newRecorder(t), "127.0.0.1")
	for target, want := range map[string]int{requestsPath + "/x": 404, requestsPath + "?limit=x": 400,
		"/api/other": 404, tunnelsPath + "/x": 404} {
		if w := serve(h, "GET", target, "localhost", ""); w.Code != want {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	for body, want := range map[string]int{"": 400, "{}": 400, `{"id":"x"}`: 404} {
		if w := serve(h, "POST", requestsPath, "localhost", body); w.Code != want {
			t.Errorf("%q: %d", body, w.Code)
		}
	}
}
