// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connectproxy dials the service through a proxy. A dialer and the environment
// (HTTPS_PROXY, ALL_PROXY, NO_PROXY) go in, and a dialer comes out that asks the proxy for the
// connection where the environment says so: an HTTP proxy with CONNECT, which may have TLS of its own,
// a SOCKS5 proxy by its protocol. The TLS to the server runs through the proxy. internal/agent and
// the forwarder pass the dialer to internal/tunnel; internal/apiclient dials with it.
package connectproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/proxy"
)

const (
	connectTimeout = 10 * time.Second // from dialing the proxy to its response
	maxResponse    = 16 << 10         // bytes of the proxy's response
)

// DialFunc opens a connection to an address, as (*net.Dialer).DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Error is a failure of the proxy, not of the server behind it. It never contains the password.
type Error struct {
	Proxy    string // Proxy is the proxy's host:port.
	Variable string // Variable is the environment variable that names the proxy.
	Err      error
}

// Error names the proxy.
func (e *Error) Error() string { return fmt.Sprintf("proxy %s (%s): %v", e.Proxy, e.Variable, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// proxyFunc returns the function that chooses the proxy of a URL by the environment: HTTPS_PROXY or
// HTTP_PROXY by its scheme, else ALL_PROXY, and none for hosts of NO_PROXY and loopback addresses.
// Each name is read in upper and lower case.
func proxyFunc(env func(string) string) func(*url.URL) (*url.URL, error) {
	all, _ := lookup(env, "ALL_PROXY")
	secure, _ := lookup(env, "HTTPS_PROXY")
	plain, _ := lookup(env, "HTTP_PROXY")
	exempt, _ := lookup(env, "NO_PROXY")
	config := httpproxy.Config{HTTPSProxy: secure, HTTPProxy: plain, NoProxy: exempt}
	if secure == "" {
		config.HTTPSProxy = all
	}
	if plain == "" {
		config.HTTPProxy = all
	}
	return config.ProxyFunc()
}

// lookup returns the value of a variable in upper or lower case, and the name that has it.
func lookup(env func(string) string, name string) (value, found string) {
	for _, n := range []string{name, strings.ToLower(name)} {
		if v := env(n); v != "" {
			return v, n
		}
	}
	return "", name
}

// Dialer returns a DialFunc that uses the proxy that env names for a TLS address, or dials
// directly. The proxy's URL is http://[user:password@]host[:port], https://… or socks5://…; its error
// says so when the one for the server at address has another form. The certificate of an https proxy
// is trusted by the system's roots or by roots, which may be nil. dial nil means a net.Dialer.
func Dialer(env func(string) string, address string, dial DialFunc, roots *x509.CertPool) (DialFunc, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	raw, variable := lookup(env, "HTTPS_PROXY")
	if raw == "" {
		raw, variable = lookup(env, "ALL_PROXY")
	}
	if raw == "" {
		return dial, nil
	}
	proxyFor := proxyFunc(env)
	p, err := proxyFor(serverURL(address))
	if err := validateProxyURL(variable, raw, err == nil && p == nil); err != nil {
		return nil, err
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		p, err := proxyFor(serverURL(address))
		if err != nil || p == nil {
			return dial(ctx, network, address)
		}
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		through, host := dialConnect, hostPort(p, "80")
		switch {
		case isSOCKS(p):
			through, host = dialSOCKS, hostPort(p, "1080")
		case p.Scheme == "https":
			through, host = secureDialConnect(roots), hostPort(p, "443")
		}
		conn, err := through(ctx, dial, p, host, address)
		if err != nil {
			return nil, fmt.Errorf("asking for a connection with %s: %w", address,
				&Error{Proxy: host, Variable: variable, Err: err})
		}
		return conn, nil
	}, nil
}

func serverURL(address string) *url.URL { return &url.URL{Scheme: "https", Host: address} }

func isSOCKS(u *url.URL) bool { return u.Scheme == "socks5" || u.Scheme == "socks5h" }

// hostPort returns the address of a proxy; port is the default.
func hostPort(u *url.URL, port string) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// validateProxyURL parses the proxy's address as httpproxy does: without a scheme it is an http
// URL. An unused proxy may have any scheme.
func validateProxyURL(variable, raw string, unused bool) error {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "": // the parser's error would contain the password
		return fmt.Errorf("%s is not a URL; give http://[user:password@]host:port", variable)
	case !unused && u.Scheme != "http" && u.Scheme != "https" && !isSOCKS(u):
		return fmt.Errorf("%s %q: proxies have the scheme http, https or socks5; give http://host:port, "+
			"or add the server to NO_PROXY", variable, u.Redacted())
	}
	return nil
}

// dialSOCKS asks the SOCKS5 proxy at host for a connection to address, whose name it resolves.
func dialSOCKS(ctx context.Context, dial DialFunc, p *url.URL, host, address string) (net.Conn, error) {
	var auth *proxy.Auth
	if p.User != nil {
		password, _ := p.User.Password()
		auth = &proxy.Auth{User: p.User.Username(), Password: password}
	}
	d, err := proxy.SOCKS5("tcp", host, auth, contextDialer(dial))
	if err != nil {
		return nil, err
	}
	return d.(proxy.ContextDialer).DialContext(ctx, "tcp", address)
}

// contextDialer is a DialFunc as golang.org/x/net/proxy wants it.
type contextDialer DialFunc

func (d contextDialer) Dial(network, address string) (net.Conn, error) {
	return d(context.Background(), network, address)
}

func (d contextDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

// secureDialConnect returns a dialConnect for proxies that are spoken to through TLS.
func secureDialConnect(
	roots *x509.CertPool,
) func(context.Context, DialFunc, *url.URL, string, string) (net.Conn, error) {
	return func(ctx context.Context, dial DialFunc, p *url.URL, host, address string) (net.Conn, error) {
		config := &tls.Config{ServerName: p.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			InsecureSkipVerify: true, // VerifyConnection verifies instead, by two sets of roots
			VerifyConnection:   func(cs tls.ConnectionState) error { return verify(cs, p.Hostname(), roots) }}
		secure := func(ctx context.Context, network, host string) (net.Conn, error) {
			raw, err := dial(ctx, network, host)
			if err != nil {
				return nil, err
			}
			conn := tls.Client(raw, config)
			if err := conn.HandshakeContext(ctx); err != nil {
				_ = raw.Close()
				//nolint:errorlint // callers must not take it for the server's certificate
				return nil, fmt.Errorf("negotiating TLS with the proxy itself: %v; its authority belongs into the "+
					"system's or into the CA file", err)
			}
			return conn, nil
		}
		return dialConnect(ctx, secure, p, host, address)
	}
}

// verify verifies the certificate of the proxy at host, a name or an IP address, by the system's roots,
// and if they do not trust it, by roots.
func verify(cs tls.ConnectionState, host string, roots *x509.CertPool) error {
	o := x509.VerifyOptions{DNSName: host, Intermediates: x509.NewCertPool()}
	for _, c := range cs.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(o)
	if err != nil && roots != nil {
		o.Roots = roots
		_, err = cs.PeerCertificates[0].Verify(o)
	}
	return err
}

// dialConnect asks the HTTP proxy at host for a connection to address.
func dialConnect(ctx context.Context, dial DialFunc, p *url.URL, host, address string) (net.Conn, error) {
	conn, err := dial(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = sendConnect(conn, p, address)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func sendConnect(conn net.Conn, p *url.URL, address string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address,
		Header: http.Header{}}
	if user := p.User; user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxResponse))
	res, err := http.ReadResponse(in, req)
	switch {
	case err != nil:
		return fmt.Errorf("reading its answer: %w", err)
	case res.StatusCode != http.StatusOK:
		_ = res.Body.Close()
		return fmt.Errorf("it answered %q; %s", res.Status, remedy(res, p.User != nil))
	case in.Buffered() > 0:
		return errors.New("it sent more than its answer")
	}
	return nil // the body of an accepted CONNECT is the connection
}

// authSchemes returns the schemes of Proxy-Authenticate headers, without their parameters.
func authSchemes(headers []string) (schemes []string) {
	for part := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if scheme, _, _ := strings.Cut(strings.TrimSpace(part), " "); isScheme.MatchString(scheme) {
			schemes = append(schemes, scheme)
		}
	}
	return schemes
}

var isScheme = regexp.MustCompile(`^[A-Za-z0-9-]{1,32}$`)

// remedy says what helps against a refusal of the proxy.
func remedy(res *http.Response, hasUser bool) string {
	status, schemes := res.StatusCode, authSchemes(res.Header.Values("Proxy-Authenticate"))
	isBasic := func(scheme string) bool { return strings.EqualFold(scheme, "Basic") }
	switch {
	case status == http.StatusProxyAuthRequired && len(schemes) > 0 && !slices.ContainsFunc(schemes, isBasic):
		return fmt.Sprintf("it wants a login by %s, of which only Basic is known here: name a local proxy in between "+
			"that knows it, such as px or cntlm", strings.Join(schemes, " or "))
	case (status == http.StatusProxyAuthRequired || status == http.StatusUnauthorized) && hasUser:
		return "correct the user and the password in its URL"
	case status == http.StatusProxyAuthRequired || status == http.StatusUnauthorized:
		return "give it a user and a password: http://user:password@host:port"
	case status == http.StatusForbidden || status == http.StatusMethodNotAllowed:
		return "let it connect to this server, or add the server to NO_PROXY if it can be reached directly"
	}
	return "look at its log, or add the server to NO_PROXY if it can be reached directly"
}
