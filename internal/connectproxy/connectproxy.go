// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connectproxy owns how a tunnel passes the HTTP proxy of a company's network: a dialer for
// the server's address goes in with the environment (HTTPS_PROXY, NO_PROXY), and one comes out that
// asks the proxy to CONNECT where the environment says so. The TLS to the server is the caller's,
// so the proxy sees bytes only. internal/agent and the forwarder hand the dialer over to
// internal/tunnel.
package connectproxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
)

const (
	timeout   = 10 * time.Second // from the connection with the proxy to its answer
	maxAnswer = 16 << 10         // bytes of the proxy's answer
)

// DialFunc dials; (*net.Dialer).DialContext is one.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer returns a DialFunc that goes through the proxy which env names for a TLS address, or else
// dials directly. HTTPS_PROXY and NO_PROXY are read in both cases; loopback addresses are never
// proxied. The proxy's URL is http://[user:password@]host[:port]. An error never holds the
// password. dial nil means a net.Dialer.
func Dialer(env func(string) string, dial DialFunc) (DialFunc, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	either := func(name string) string {
		if v := env(name); v != "" {
			return v
		}
		return env(strings.ToLower(name))
	}
	config := httpproxy.Config{HTTPSProxy: either("HTTPS_PROXY"), NoProxy: either("NO_PROXY")}
	if config.HTTPSProxy == "" {
		return dial, nil
	}
	if err := check(config.HTTPSProxy); err != nil {
		return nil, err
	}
	proxyFor := config.ProxyFunc()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		proxy, err := proxyFor(&url.URL{Scheme: "https", Host: address})
		if err != nil || proxy == nil {
			return dial(ctx, network, address)
		}
		return through(ctx, dial, proxy, address)
	}, nil
}

// check reads the proxy's address as httpproxy will; without a scheme it is an http one.
func check(raw string) error {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "": // the parser's error would hold the password
		return errors.New("HTTPS_PROXY is not a URL; give http://[user:password@]host:port")
	case u.Scheme != "http":
		return fmt.Errorf(
			"HTTPS_PROXY %q: a tunnel passes proxies with the scheme http only; give http://host:port, or add the server to "+
				"NO_PROXY", u.Redacted())
	}
	return nil
}

// through connects with the proxy and asks it for a connection with address.
func through(ctx context.Context, dial DialFunc, proxy *url.URL, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	host := proxy.Host
	if proxy.Port() == "" {
		host = net.JoinHostPort(proxy.Hostname(), "80")
	}
	conn, err := dial(ctx, "tcp", host)
	if err != nil {
		return nil, fmt.Errorf("dialing proxy %s: %w", host, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = connect(conn, proxy, address)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("asking proxy %s to connect with %s: %w", host, address, err)
	}
	return conn, nil
}

func connect(conn net.Conn, proxy *url.URL, address string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	res, err := http.ReadResponse(in, req)
	switch {
	case err != nil:
		return fmt.Errorf("reading its answer: %w", err)
	case res.StatusCode != http.StatusOK:
		_ = res.Body.Close()
		return fmt.Errorf("it answered %q", res.Status)
	case in.Buffered() > 0:
		return errors.New("it sent more than its answer")
	}
	return nil // the body of an accepted CONNECT is the connection
}
