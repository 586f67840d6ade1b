// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// startServer runs a policy in front of a handler on a real server, over HTTP/1.1 or HTTP/2.
func startServer(t *testing.T, p *Policy, h2 bool, upstream http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ServeHTTP(w, r, fullConn(),
			forwardFunc(func(w http.ResponseWriter, r *http.Request, _ Target) { upstream(w, r) }))
	}))
	s.EnableHTTP2 = h2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func getPath(t *testing.T, s *httptest.Server, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	must.Succeed(t, err)
	res, err := s.Client().Do(req)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

const onResponse = `
on_http_response:
- expressions: ["res.status_code >= 500", "getResHeader('x-kind') == ['json']"]
  actions:
  - type: custom-response
    config: {status_code: 503, body: '{"was": ${res.status_code}}', headers: {retry-after: "5"}}
- expressions:
  - "res.content_type == 'text/plain'"
  - res.content_length == 2
  - res.location == '/l'
  - res.cookies['c'][0].value == 'v'
  - req.url.path == '/ok'
  actions: [{type: add-headers, config: {headers: {x-all: seen}}}]
- actions:
  - {type: remove-headers, config: {headers: [server, x-secret]}}
  - type: add-headers
    config: {headers: {x-pod: "${conn.pod.name}", x-status: "${res.status_code}", x-geo: "${conn.geo.city}"}}
`

func TestResponse_RunsRules(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2 ", h2), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, compile(t, onResponse), h2, func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h.Set("X-Secret", "s")
				switch r.URL.Path {
				case "/ok":
					h.Set("Content-Type", "text/plain; charset=utf-8")
					h.Set("Content-Length", "2")
					h.Set("Location", "/l")
					h.Set("Set-Cookie", "c=v; Path=/")
					_, _ = io.WriteString(w, "ok")
				case "/broken":
					h.Set("X-Kind", "json")
					h.Set("Content-Length", "6")
					w.WriteHeader(502)
					_, _ = io.WriteString(w, "secret")
					w.Header().Set(http.TrailerPrefix+"X-T", "late")
				case "/silent":
				}
			})
			res := getPath(t, s, "/ok")
			if b := body(t, res); res.StatusCode != 200 || b != "ok" || res.Header.Get("X-All") != "seen" ||
				res.Header.Get("X-Secret") != "" || res.Header.Get("X-Pod") != "cart-1" ||
				res.Header.Get("X-Status") != "200" || res.Header["X-Geo"] != nil || (res.ProtoMajor == 2) != h2 {
				t.Errorf("got %q %+v", b, res)
			}
			res = getPath(t, s, "/broken")
			if b := body(t, res); res.StatusCode != 503 || b != `{"was": 502}` ||
				res.Header.Get("Content-Type") != "application/json" || res.Header.Get("X-Kind") != "" ||
				res.Header.Get("Retry-After") != "5" || len(res.Trailer) != 0 {
				t.Errorf("got %q %+v", b, res)
			}
			if res = getPath(t, s, "/silent"); res.StatusCode != 200 {
				t.Errorf("got %+v", res)
			}
		})
	}
}

// TestResponse_Streams checks that a response streams, its trailers arrive, and interim responses
// pass unchanged.
func TestResponse_Streams(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2 ", h2), func(t *testing.T) {
			t.Parallel()
			got := make(chan string)
			s := startServer(t, compile(t, onResponse), h2, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", "</x>")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("Trailer", "X-Sum")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				for _, part := range []string{"one", "two"} {
					_, _ = io.WriteString(w, part)
					w.(http.Flusher).Flush()
					select {
					case <-got:
					case <-r.Context().Done():
						return
					}
				}
				if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
					t.Error(err)
				}
				w.Header().Set("X-Sum", "2")
			})
			hints := make(chan http.Header, 1)
			ctx := httptrace.WithClientTrace(t.Context(),
				&httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					hints <- http.Header(h)
					return nil
				}})
			req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
			must.Succeed(t, err)
			res, err := s.Client().Do(req)
			must.Succeed(t, err)
			defer res.Body.Close()
			if h := <-hints; h.Get("Link") != "</x>" || h.Get("X-Pod") != "" {
				t.Errorf("the interim response has %v", h)
			}
			buf := make([]byte, 3)
			for _, want := range []string{"one", "two"} {
				if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != want {
					t.Fatalf("got %q, %v", buf, err)
				}
				got <- want
			}
			if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != 0 || res.Trailer.Get("X-Sum") != "2" ||
				res.Header.Get("X-Pod") != "cart-1" {
				t.Errorf("rest %q, %v, trailer %v, header %v", rest, err, res.Trailer, res.Header)
			}
		})
	}
}

// TestResponse_ReplacesEndlessBody checks that an answer of the policy instead of an endless
// response reaches the client whole, and that the upstream's request is cancelled.
func TestResponse_ReplacesEndlessBody(t *testing.T) {
	t.Parallel()
	p := compile(t, "on_http_response:\n- actions: [{type: custom-response, config: {body: instead}}]\n")
	for _, h2 := range []bool{false, true} {
		for name, upstream := range map[string]http.HandlerFunc{
			"silent": func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			},
			"chatty": func(w http.ResponseWriter, _ *http.Request) {
				for {
					if _, err := io.WriteString(w, "more"); err != nil {
						panic(http.ErrAbortHandler)
					}
				}
			},
		} {
			t.Run(fmt.Sprint(name, " h2 ", h2), func(t *testing.T) {
				t.Parallel()
				ended := make(chan bool, 1)
				s := startServer(t, p, h2, func(w http.ResponseWriter, r *http.Request) {
					defer func() { ended <- true }()
					w.Header().Set("Connection", "close")
					w.WriteHeader(200)
					upstream(w, r)
				})
				res := getPath(t, s, "/")
				if b := body(t, res); b != "instead" || res.Close == h2 {
					t.Errorf("got %q %+v", b, res)
				}
				<-ended
			})
		}
	}
}

// TestResponse_PassesUpgrades checks that the connection of an upgrade is handed over, and that the
// policy writes nothing into it.
func TestResponse_PassesUpgrades(t *testing.T) {
	t.Parallel()
	s := startServer(t, compile(t, onResponse), false, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	})
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), s.Client().Transport.(*http.Transport).TLSClientConfig)
	must.Succeed(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("X-Pod") != "" {
		t.Fatalf("got %+v, %v", res, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if all, err := io.ReadAll(in); string(all) != "hello\n" {
		t.Errorf("got %q, %v", all, err)
	}
}

// TestServeHTTP_AllocatesNothingWithoutRules checks that a policy without rules for a phase costs
// nothing in it.
func TestServeHTTP_AllocatesNothingWithoutRules(t *testing.T) {
	p := compile(t, "on_tcp_connect:\n- actions: [{type: deny}]\n")
	w, r, c := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), fullConn()
	forward := forwardFunc(func(http.ResponseWriter, *http.Request, Target) {})
	if n := testing.AllocsPerRun(100, func() { p.ServeHTTP(w, r, c, forward) }); n != 0 {
		t.Errorf("%v allocations for a request without rules", n)
	}
}
