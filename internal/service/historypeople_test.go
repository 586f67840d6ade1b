// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

const (
	peopleHost = "people.example.com"
	peopleURL  = "https://" + peopleHost
)

// people log in at an endpoint, which an agent serves.
type people struct {
	h     *history
	idp   *oidctest.Provider
	roots *x509.CertPool

	mu     sync.Mutex // one login at a time: the provider knows one person
	serial int
}

// startPeople starts the provider and the agent.
func (h *history) startPeople(random *rand.Rand, roots *x509.CertPool) *people {
	h.t.Helper()
	p := &people{h: h, idp: oidctest.Start(h.t), roots: roots}
	p.idp.Discovery = map[string]any{"authorization_response_iss_parameter_supported": true}
	policy := fmt.Sprintf("on_http_request:\n- actions:\n  - type: openid-connect\n    config: {issuer_url: %q, "+
		"client_id: %s, client_secret: %s, scopes: [openid, email]}\n",
		p.idp.URL, oidctest.ClientID, oidctest.ClientSecret)
	upstream := servicetest.ServeHTTP(h.t, servePeople)
	config, err := trust.Options{CASHA256: h.fingerprint}.ClientConfig()
	h.must(err)
	secret, bound := "", make(chan struct{}, 1)
	client := tunnel.NewClient(tunnel.ClientConfig{
		Address: "127.0.0.1:8443", TLS: config, MaxBackoff: 300 * time.Millisecond, DialContext: h.dialAny(random),
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: h.authtoken, ClientVersion: "0.0.0-test", OS: "linux",
				InstanceID: "people"}
		},
		OnUp: func(ctx context.Context, s *tunnel.Session) error {
			got, err := s.Bind(ctx, tunnel.Bind{URL: peopleURL, Binding: "public", UpstreamURL: "http://" + upstream,
				UpstreamProtocol: "http1", TrafficPolicy: policy, ResumeSecret: secret})
			if err == nil {
				secret = got.ResumeSecret
				select {
				case bound <- struct{}{}:
				default:
				}
			}
			return err
		},
		OnStream: func(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) {
			servicetest.RelayTo(upstream)(ctx, st)
		},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = client.Run(ctx)
	}()
	h.t.Cleanup(func() { cancel(); <-done })
	servicetest.Receive(h.t, bound, "bind of the endpoint with a login")
	return p
}

// servePeople is the upstream: it writes lines with the time to streams until they end, and answers
// anything else with the id of the person.
func servePeople(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/events", "/download":
		flush := http.NewResponseController(w).Flush
		padding := map[string]int{"/download": 16 << 10}[r.URL.Path]
		writeLines(r.Context(), w, flush, padding)
	case "/websocket":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		ctx, cancel := context.WithCancel(context.Background())
		go func() { defer cancel(); _, _ = io.Copy(io.Discard, conn) }()
		writeLines(ctx, conn, func() error { return nil }, 0)
	default:
		_, _ = io.WriteString(w, r.Header.Get("Fairlead-Auth-User-Id"))
	}
}

// writeLines writes lines with the time, padded, until ctx is done or writing fails.
func writeLines(ctx context.Context, w io.Writer, flush func() error, padding int) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := fmt.Fprintf(w, "%d %s\n", time.Now().UnixNano(), strings.Repeat("x", padding)); err != nil {
			return
		}
		if flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// person is a browser whose user has logged in.
type person struct {
	p       *people
	name    string
	userID  string
	cookies []*http.Cookie
}

func (o *person) keep(cookies []*http.Cookie) {
	for _, c := range cookies {
		o.cookies = slices.DeleteFunc(o.cookies, func(had *http.Cookie) bool { return had.Name == c.Name })
		if c.MaxAge >= 0 {
			o.cookies = append(o.cookies, c)
		}
	}
}

// newPerson logs a new person in.
func (p *people) newPerson(ctx context.Context, random *rand.Rand) *person {
	p.mu.Lock()
	p.serial++
	name := fmt.Sprint("person-", p.serial)
	p.mu.Unlock()
	for ctx.Err() == nil {
		if o, err := p.logIn(ctx, name, random); err == nil {
			return o
		}
		p.h.pause(random, 200*time.Millisecond)
	}
	return nil
}

// logIn logs a person in, each step at any service. It fails when one does not answer.
func (p *people) logIn(ctx context.Context, name string, random *rand.Rand) (*person, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &person{p: p, name: name}
	p.idp.SetPerson(map[string]any{"sub": name, "email": name + "@example.com", "email_verified": true})
	at, err := url.Parse(peopleURL + "/me")
	if err != nil {
		return nil, err
	}
	for range 12 {
		status, header, body, err := o.get(ctx, p.h.any(random), at.String())
		if err != nil {
			return nil, err
		}
		if status == http.StatusOK {
			o.userID = body
			return o, nil
		}
		if header.Get("Location") == "" {
			return nil, fmt.Errorf("%s: %d %s", at, status, body)
		}
		if at, err = at.Parse(header.Get("Location")); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("redirects without end")
}

// newRequest returns a navigation's request.
func (o *person) newRequest(ctx context.Context, target string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Accept", "text/html")
	if r.URL.Host == peopleHost {
		for _, c := range o.cookies {
			r.AddCookie(c)
		}
	}
	return r, nil
}

func (p *people) tlsConfig() *tls.Config {
	return &tls.Config{RootCAs: p.roots, ServerName: peopleHost, NextProtos: []string{"http/1.1"}}
}

// open sends a request to a service, or to the provider, over a connection of its own.
func (o *person) open(ctx context.Context, at *incarnation, target string) (*http.Response, error) {
	if at == nil {
		return nil, errors.New("no service is ready")
	}
	r, err := o.newRequest(ctx, target)
	if err != nil {
		return nil, err
	}
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: o.p.tlsConfig(),
		ResponseHeaderTimeout: 5 * time.Second,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, peopleHost) {
				addr = at.addrs.HTTPS.String()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	return tr.RoundTrip(r)
}

// get sends a request and reads the answer.
func (o *person) get(
	ctx context.Context, at *incarnation, target string,
) (status int, header http.Header, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	res, err := o.open(ctx, at, target)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if strings.HasPrefix(target, peopleURL) {
		o.keep(res.Cookies())
	}
	return res.StatusCode, res.Header, string(b), err
}

// upgrade opens a websocket.
func (o *person) upgrade(ctx context.Context, at *incarnation) (io.ReadCloser, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.addrs.HTTPS.String())
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, o.p.tlsConfig())
	r, err := o.newRequest(ctx, peopleURL+"/websocket")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Origin": peopleURL,
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		r.Header.Set(k, v)
	}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if err := r.Write(c); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, r)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.Join(errors.New("no upgrade"), err, conn.Close())
	}
	_ = conn.SetDeadline(time.Time{})
	return struct {
		io.Reader
		io.Closer
	}{in, conn}, nil
}
