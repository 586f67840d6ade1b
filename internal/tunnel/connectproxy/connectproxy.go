// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connectproxy dials the service through an HTTP proxy. A dialer and the environment
// (HTTPS_PROXY, NO_PROXY) go in, and a dialer comes out that sends CONNECT to the proxy where the
// environment says so. The TLS to the server runs through the proxy. internal/agent and the
// forwarder pass the dialer to internal/tunnel.
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
	connectTimeout = 10 * time.Second // from dialing the proxy to its response
	maxResponse    = 16 << 10         // bytes of the proxy's response
)

// DialFunc dials an address, as (*net.Dialer).DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer returns a DialFunc that uses the proxy that env names for a TLS address, or dials
// directly. HTTPS_PROXY and NO_PROXY are read in upper and lower case; loopback addresses are never
// proxied. The proxy's URL is http://[user:password@]host[:port]. Errors never contain the
// password. dial nil means a net.Dialer.
func Dialer(env func(string) string, dial DialFunc) (DialFunc, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	getenv := func(name string) string {
		if v := env(name); v != "" {
			return v
		}
		return env(strings.ToLower(name))
	}
	config := httpproxy.Config{HTTPSProxy: getenv("HTTPS_PROXY"), NoProxy: getenv("NO_PROXY")}
	if config.HTTPSProxy == "" {
		return dial, nil
	}
	if err := validateProxyURL(config.HTTPSProxy); err != nil {
		return nil, err
	}
	proxyFor := config.ProxyFunc()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		proxy, err := proxyFor(&url.URL{Scheme: "https", Host: address})
		if err != nil || proxy == nil {
			return dial(ctx, network, address)
		}
		return dialViaProxy(ctx, dial, proxy, address)
	}, nil
}

// validateProxyURL parses the proxy's address as httpproxy does: without a scheme it is an http
// URL.
func validateProxyURL(raw string) error {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "": // the parser's error would contain the password
		return errors.New("HTTPS_PROXY is not a URL; give http://[user:password@]host:port")
	case u.Scheme != "http":
		return fmt.Errorf(
			"HTTPS_PROXY %q: a tunnel passes proxies with the scheme http only; give http://host:port, or add the "+
				"server to "+
				"NO_PROXY", u.Redacted())
	}
	return nil
}

// dialViaProxy dials the proxy and asks it for a connection to address.
func dialViaProxy(ctx context.Context, dial DialFunc, proxy *url.URL, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
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
	err = sendConnect(conn, proxy, address)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("asking proxy %s to connect with %s: %w", host, address, err)
	}
	return conn, nil
}

func sendConnect(conn net.Conn, proxy *url.URL, address string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address,
		Header: http.Header{}}
	if user := proxy.User; user != nil {
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
		return fmt.Errorf("it answered %q", res.Status)
	case in.Buffered() > 0:
		return errors.New("it sent more than its answer")
	}
	return nil // the body of an accepted CONNECT is the connection
}
