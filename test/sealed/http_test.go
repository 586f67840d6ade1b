// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// digestOf answers with what a request said of its caller, and the digest of its body.
func digestOf(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	_, _ = io.Copy(hash, r.Body)
	_, _ = fmt.Fprintf(w, "%s %s %s %x", r.Host, r.Header.Get("X-Forwarded-For"), r.URL, hash.Sum(nil))
}

// TestSealedHTTP_KeepsConnections holds that requests of one connection of a pod pass one sealed
// connection, large ones whole, and that the agent reports them.
func TestSealedHTTP_KeepsConnections(t *testing.T) { overBothPaths(t, testSealedHTTPKeepsConnections) }

func testSealedHTTPKeepsConnections(t *testing.T) {
	s := newSite(t, digestOf, nil)
	large := make([]byte, 5<<20)
	_, _ = rand.Read(large)
	for _, body := range [][]byte{nil, large, []byte("small")} {
		res, got, err := s.do("POST", "/a?b=c", bytes.NewReader(body))
		want := fmt.Sprintf("api.demo 10.1.2.3 /a?b=c %x", sha256.Sum256(body))
		if err != nil || res.StatusCode != 200 || got != want {
			t.Errorf("%s %q, %v", res.Status, got, err)
		}
		r := servicetest.Receive(t, s.requests, "report")
		if r.URL != "http://api.demo" || r.Method != "POST" || r.Path != "/a" || r.Status != 200 {
			t.Errorf("reported %+v", r)
		}
	}
	if n := s.calls.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestSealedHTTP_SpeaksHTTP2 holds that callers speak either version of HTTP, over either one to an
// upstream with TLS, with trailers, and that the inspector sees what the agent sends.
func TestSealedHTTP_SpeaksHTTP2(t *testing.T) { overBothPaths(t, testSealedHTTPSpeaksHTTP2) }

func testSealedHTTPSpeaksHTTP2(t *testing.T) {
	for _, upstream := range []string{agent.ProtocolHTTP1, agent.ProtocolHTTP2} {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set(http.TrailerPrefix+"X-Got", r.Trailer.Get("X-Sent")+" over "+r.Proto)
				_, _ = io.WriteString(w, "answer")
				_ = http.NewResponseController(w).Flush() // in HTTP/1 only an answer of unknown length has trailers
			}))
			secure.EnableHTTP2 = true
			secure.StartTLS()
			t.Cleanup(secure.Close)
			recorder := inspect.New()
			t.Cleanup(recorder.Close)
			s := newSite(t, nil, func(r *rig, e *agent.Endpoint) {
				r.recorder = recorder
				e.Upstream, _ = agent.ParseUpstream("http", secure.URL)
				e.Upstream.Protocol, e.Upstream.Roots = upstream, x509.NewCertPool()
				e.Upstream.Roots.AddCert(secure.Certificate())
			})
			want := "sent over HTTP/" + strings.Replace(upstream[len("http"):]+".0", "1.0", "1.1", 1)
			for _, http2 := range []bool{false, true} {
				protocols := new(http.Protocols)
				protocols.SetHTTP1(!http2)
				protocols.SetUnencryptedHTTP2(http2)
				transport := s.client.Transport.(*http.Transport).Clone()
				transport.Protocols = protocols
				t.Cleanup(transport.CloseIdleConnections)
				s.client.Transport = transport
				body := struct{ io.Reader }{strings.NewReader("body")}
				r, err := http.NewRequest("POST", "http://api.demo/", body)
				must.Succeed(t, err)
				r.Trailer = http.Header{"X-Sent": {"sent"}}
				res, err := s.client.Do(r)
				must.Succeed(t, err)
				got, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || string(got) != "answer" || res.Trailer.Get("X-Got") != want {
					t.Errorf("HTTP/2 %t: %s %q %v, %v", http2, res.Status, got, res.Trailer, err)
				}
			}
			wait.Until(t, "two recorded exchanges", func() bool {
				return len(recorder.List(inspect.Filter{Status: "200"})) == 2
			})
			e, _ := recorder.Get(recorder.List(inspect.Filter{})[0].ID)
			if e.EndpointID != s.id || string(e.Request.Body) != "body" || string(e.Response.Body) != "answer" {
				t.Errorf("recorded %+v", e)
			}
		})
	}
}

func TestSealedHTTP_AbortedAnswerIsNoEnd(t *testing.T) {
	overBothPaths(t, testSealedHTTPAbortedAnswerIsNoEnd)
}

func testSealedHTTPAbortedAnswerIsNoEnd(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "100")
		}
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, nil)
	for _, path := range []string{"/length", "/chunks"} {
		if res, got, err := s.do("GET", path, nil); err == nil {
			t.Errorf("%s: an aborted answer is whole: %s %q", path, res.Status, got)
		}
	}
}

// upgraded returns a connection that the endpoint has upgraded.
func (s *site) upgraded() (call, *bufio.Reader) {
	s.t.Helper()
	c := s.callAt(apiURL, s.id, s.trust)
	_, err := io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: api.demo\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	must.Succeed(s.t, err)
	buffered := bufio.NewReader(c)
	res, err := http.ReadResponse(buffered, nil)
	must.Succeed(s.t, err)
	if res.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("the answer is %s", res.Status)
	}
	return c, buffered
}

// TestSealedHTTP_Upgrades holds that an upgraded connection carries bytes both ways, and that neither
// side's abort becomes the other's end.
func TestSealedHTTP_Upgrades(t *testing.T) { overBothPaths(t, testSealedHTTPUpgrades) }

func testSealedHTTPUpgrades(t *testing.T) {
	ended := make(chan error, 10)
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			ended <- err
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		for {
			line, err := buffered.ReadString('\n')
			if err != nil {
				ended <- err
				return
			}
			if line == "abort\n" {
				_ = c.(*net.TCPConn).SetLinger(0)
				return
			}
			_, _ = io.WriteString(c, line)
		}
	}, nil)
	for name, end := range map[string]struct {
		by             func(call)
		atUp, atClient func(error) bool // nil = not checked
	}{
		"end":            {func(c call) { _ = c.CloseWrite() }, isEOF, isEOF},
		"caller aborts":  {func(c call) { _ = c.SetLinger(0); _ = c.Close() }, isAbort, nil},
		"upstream abort": {func(c call) { _, _ = io.WriteString(c, "abort\n") }, nil, isAbort},
	} {
		c, buffered := s.upgraded()
		_, _ = io.WriteString(c, "hello\n")
		if line, err := buffered.ReadString('\n'); line != "hello\n" || err != nil {
			t.Fatalf("%s: %q, %v", name, line, err)
		}
		end.by(c)
		if end.atUp != nil {
			if err := servicetest.Receive(t, ended, "end at the upstream"); !end.atUp(err) {
				t.Errorf("%s: the upstream read %v", name, err)
			}
		}
		if end.atClient != nil {
			if _, err := buffered.ReadByte(); !end.atClient(err) {
				t.Errorf("%s: the caller read %v", name, err)
			}
		}
	}
}

func isEOF(err error) bool   { return errors.Is(err, io.EOF) }
func isAbort(err error) bool { return err != nil && !isEOF(err) }

// TestSealedHTTP_PolicyOfTheAgent holds that the agent applies its policy, of which the service knows
// nothing.
func TestSealedHTTP_PolicyOfTheAgent(t *testing.T) { overBothPaths(t, testSealedHTTPPolicyOfTheAgent) }

func testSealedHTTPPolicyOfTheAgent(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("X-Team")) },
		func(_ *rig, e *agent.Endpoint) {
			e.TrafficPolicy = `
on_tcp_connect:
- expressions: ["conn.client_ip != '10.1.2.3'"]
  actions: [{type: deny}]
on_http_request:
- expressions: ["req.url.path.startsWith('/admin')"]
  actions: [{type: deny, config: {status_code: 404}}]
- actions: [{type: add-headers, config: {headers: {x-team: "${conn.client_ip}"}}}]
on_http_response:
- actions: [{type: add-headers, config: {headers: {x-from: agent}}}]`
		})
	res, got, err := s.do("GET", "/", nil)
	if err != nil || res.StatusCode != 200 || got != "10.1.2.3" || res.Header.Get("X-From") != "agent" {
		t.Errorf("%s %v %q, %v", res.Status, res.Header, got, err)
	}
	if res, _, err = s.do("GET", "/admin", nil); err != nil || res.StatusCode != 404 ||
		res.Header.Get(account.CodeHeader) != string(account.CodeDenied) {
		t.Errorf("%s %v, %v", res.Status, res.Header, err)
	}
	if n := s.calls.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	var ep account.Endpoint
	if s.CallAPI("GET", "/endpoints/"+s.id, nil, &ep); ep.TrafficPolicy != "" || ep.SealKey == "" {
		t.Errorf("the service knows %+v", ep)
	}
}

// TestSealed_PolicyOfTCPEndpoint holds that on_tcp_connect of a tcp endpoint runs at the agent: a
// connection that it denies reaches no upstream, and ends with a reset.
func TestSealed_PolicyOfTCPEndpoint(t *testing.T) { overBothPaths(t, testSealedPolicyOfTCPEndpoint) }

func testSealedPolicyOfTCPEndpoint(t *testing.T) {
	for address, admitted := range map[string]bool{"10.1.2.3": true, "10.9.9.9": false} {
		r := newRig(t)
		var reached atomic.Bool
		e := r.endpoint(upstream(t, func(c *net.TCPConn) {
			reached.Store(true)
			digest("got ")(c)
		}), r.owner.Identity(databaseURL))
		e.TrafficPolicy = `{"on_tcp_connect": [{"actions": [{"type": "restrict-ips", "config": {"allow": ["` + address +
			`/32"]}}]}]}`
		edge := sealededge.New(slog.New(slog.DiscardHandler))
		t.Cleanup(edge.Close)
		e.SealedServer = edge.Server(&e)
		c := r.call(r.serve("in-a", e), r.owner.Trust())
		_, _ = io.WriteString(c, "x")
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		if admitted && (err != nil || string(got) != "got x") || !admitted && (err == nil || reached.Load()) {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
}

// TestSealedHTTP_FailuresAreAnswered holds that a request which cannot be served is answered with its
// code: by the forwarder before an agent has opened the connection, by the agent afterwards.
func TestSealedHTTP_FailuresAreAnswered(t *testing.T) {
	overBothPaths(t, testSealedHTTPFailuresAreAnswered)
}

func testSealedHTTPFailuresAreAnswered(t *testing.T) {
	type change = func(*rig, *agent.Endpoint)
	for name, c := range map[string]struct {
		change change
		trust  func(*rig) *sealed.Trust
		status int
		code   account.Code
		again  bool // again reports that the connection is kept.
	}{
		"upstream down": {func(r *rig, e *agent.Endpoint) {
			e.Upstream, _ = agent.ParseUpstream("http", closedport.Reserve(r.t))
		}, nil, 502, account.CodeUpstreamUnreachable, true},
		"not sealed":   {func(_ *rig, e *agent.Endpoint) { e.Seal = nil }, nil, 503, account.CodeNotSealed, false},
		"a plain call": {nil, func(*rig) *sealed.Trust { return nil }, 503, account.CodeEndpointSealed, false},
		"another authority": {nil, func(r *rig) *sealed.Trust {
			return sealtest.NewOwner(r.t, r.owner.Account).Trust()
		}, 503, account.CodeSealUntrusted, false},
		"another account": {nil, func(r *rig) *sealed.Trust {
			o := *r.owner
			o.Account = "ac-16f0l2rj1qg4o3b5e6s7t8u9v0"
			return o.Trust()
		}, 503, account.CodeSealUntrusted, false},
		"certificate of another endpoint": {func(r *rig, e *agent.Endpoint) { e.Seal = r.owner.Identity(wikiURL) }, nil,
			503, account.CodeSealUntrusted, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was reached") }, c.change)
			if c.trust != nil {
				s.trust = c.trust(s.rig)
			}
			for range 2 {
				res, body, err := s.do("POST", "/", strings.NewReader("secret"))
				if err != nil || res.StatusCode != c.status || res.Header.Get(account.CodeHeader) != string(c.code) {
					t.Errorf("%s %v %q, %v", res.Status, res.Header, body, err)
				}
			}
			if n := s.calls.Load(); n != 1 != !c.again {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestSealedHTTP_PassesOverMember holds that the callers of a pool do not get the page of a member whose
// upstream is known to be down.
func TestSealedHTTP_PassesOverMember(t *testing.T) { overBothPaths(t, testSealedHTTPPassesOverMember) }

func testSealedHTTPPassesOverMember(t *testing.T) {
	s := newSite(t, digestOf, nil)
	s.serveHTTP("in-b", func(_ *rig, e *agent.Endpoint) {
		e.Dial = nil // so that the agent probes the upstream
		e.Upstream, _ = agent.ParseUpstream("http", closedport.Reserve(t))
	})
	servicetest.Receive(t, s.down, "report that the upstream is down")
	for range 10 {
		res, body, err := s.do("GET", "/", nil)
		if err != nil || res.StatusCode != 200 {
			t.Errorf("%s %q, %v", res.Status, body, err)
		}
		s.client.CloseIdleConnections()
	}
}

var wikiURL = account.EndpointURL{Scheme: "http", Host: "wiki.demo", Port: 80}

// TestSealedHTTP_ServiceLeadsElsewhere holds that a service which leads http://wiki.demo to the agent of
// http://api.demo reaches nothing, also where one certificate names both.
func TestSealedHTTP_ServiceLeadsElsewhere(t *testing.T) {
	overBothPaths(t, testSealedHTTPServiceLeadsElsewhere)
}

func testSealedHTTPServiceLeadsElsewhere(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was reached") },
		func(r *rig, e *agent.Endpoint) {
			e.Seal = r.owner.Identity(account.EndpointURL{Scheme: "http", Host: "*.demo", Port: 80})
		})
	c := s.callLed(wikiURL, apiURL, s.id, s.trust)
	_, _ = io.WriteString(c, "GET /secret HTTP/1.1\r\nHost: wiki.demo\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must.Succeed(t, err)
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(body), "leads to http://api.demo, not to http://wiki.demo") {
		t.Errorf("%s %q, %v", res.Status, body, err)
	}
}
