// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
)

// The endpoint that people log in at.
const (
	loginHost = "login." + domain
	loginURL  = "https://" + loginHost
)

// site is an endpoint with a login, served by an agent.
type site struct {
	*rig

	idp   *oidctest.Provider
	agent *testAgent
}

func (r *rig) startSite(t *testing.T) *site {
	t.Helper()
	s := &site{rig: r, idp: oidctest.Start(t)}
	s.idp.Discovery = map[string]any{"authorization_response_iss_parameter_supported": true}
	policy := fmt.Sprintf("on_http_request:\n- actions:\n  - type: openid-connect\n    config: {issuer_url: %q, "+
		"client_id: %s, client_secret: %s, scopes: [openid, email]}\n",
		s.idp.URL, oidctest.ClientID, oidctest.ClientSecret)
	s.agent, _ = r.startAgent(-1,
		endpoint{url: loginURL, binding: "public", upstream: startUpstream(t), policy: policy})
	r.waitLegs(s.agent)
	return s
}

// person is a browser whose user has logged in.
type person struct {
	s       *site
	client  netip.Addr
	cookies []*http.Cookie
	userID  string
}

// logIn logs a person in at a server.
func (s *site) logIn(name string, server int) *person {
	s.t.Helper()
	p, err := s.tryLogIn(name, server)
	must.Succeed(s.t, err)
	return p
}

// tryLogIn is logIn at a server that may refuse it.
func (s *site) tryLogIn(name string, server int) (*person, error) {
	s.t.Helper()
	p := &person{s: s, client: s.nextClient()}
	s.idp.SetPerson(map[string]any{"sub": name, "email": name + "@example.com", "email_verified": true})
	at, err := url.Parse(loginURL + "/me")
	must.Succeed(s.t, err)
	for range 10 {
		res := p.get(server, at.String())
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		must.Succeed(s.t, err)
		if at.Host == loginHost {
			p.keep(res.Cookies())
		}
		if res.StatusCode == http.StatusOK {
			p.userID = string(body)
			return p, nil
		}
		to := res.Header.Get("Location")
		if to == "" {
			return nil, fmt.Errorf("%s: %d %s", at, res.StatusCode, body)
		}
		at, err = at.Parse(to)
		must.Succeed(s.t, err)
	}
	return nil, errors.New("redirects without end")
}

func (p *person) keep(cookies []*http.Cookie) {
	for _, c := range cookies {
		p.cookies = slices.DeleteFunc(p.cookies, func(had *http.Cookie) bool { return had.Name == c.Name })
		if c.MaxAge >= 0 {
			p.cookies = append(p.cookies, c)
		}
	}
}

// newRequest returns a navigation's request.
func (p *person) newRequest(target string) *http.Request {
	p.s.t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(p.s.t.Context()), http.MethodGet, target, nil)
	must.Succeed(p.s.t, err)
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Accept", "text/html")
	if r.URL.Host == loginHost {
		for _, c := range p.cookies {
			r.AddCookie(c)
		}
	}
	return r
}

func (p *person) tlsConfig() *tls.Config {
	return &tls.Config{RootCAs: p.s.roots, ServerName: loginHost, NextProtos: []string{"http/1.1"}}
}

// try sends a request to a server, or to the provider, over a connection of its own.
func (p *person) try(server int, target string) (*http.Response, error) {
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: p.tlsConfig(),
		ResponseHeaderTimeout: requestTimeout,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, loginHost) {
				addr = p.s.replicas[server].https
			}
			return dialerFrom(p.client)(ctx, network, addr)
		}}
	return tr.RoundTrip(p.newRequest(target))
}

func (p *person) get(server int, target string) *http.Response {
	p.s.t.Helper()
	res, err := p.try(server, target)
	must.Succeed(p.s.t, err)
	return res
}

// isServed reports whether a server gives the person the endpoint's content.
func (p *person) isServed(server int) (bool, error) {
	res, err := p.try(server, loginURL+"/hello")
	if err != nil {
		return false, err
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK, nil
}

// open opens a stream at a server and waits for its first line.
func (p *person) open(server int, path string) *stream {
	p.s.t.Helper()
	var from io.ReadCloser
	if path == websocketPath {
		from = p.upgrade(server)
	} else {
		res := p.get(server, loginURL+path)
		if res.StatusCode != http.StatusOK {
			p.s.t.Fatalf("%s at server %d: %d", path, server, res.StatusCode)
		}
		from = res.Body
	}
	s := readStream(path, from)
	p.s.t.Cleanup(func() { _ = from.Close(); <-s.ended })
	select {
	case <-s.first:
	case <-s.ended:
		p.s.t.Fatalf("%s at server %d has ended without a line", path, server)
	case <-time.After(time.Minute):
		p.s.t.Fatalf("%s at server %d sends nothing", path, server)
	}
	return s
}

// upgraded is a websocket's connection.
type upgraded struct {
	io.Reader
	net.Conn
}

// Read returns what follows the upgrade.
func (u upgraded) Read(b []byte) (int, error) { return u.Reader.Read(b) }

func (p *person) upgrade(server int) io.ReadCloser {
	p.s.t.Helper()
	raw, err := dialerFrom(p.client)(context.Background(), "tcp", p.s.replicas[server].https)
	must.Succeed(p.s.t, err)
	conn, r := tls.Client(raw, p.tlsConfig()), p.newRequest(loginURL+websocketPath)
	for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Origin": loginURL,
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		r.Header.Set(k, v)
	}
	must.Succeed(p.s.t, r.Write(conn))
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, r)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		p.s.t.Fatalf("upgrade: %+v, %v", res, err)
	}
	return upgraded{in, conn}
}
