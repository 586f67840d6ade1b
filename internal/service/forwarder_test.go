// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// testForwarder is what internal/operator/forwarder does with a pod's connection, without the pod.
type testForwarder struct {
	*tunnel.Client
	t     *testing.T
	ended <-chan error
	lines chan tunnel.RequestLine
}

func (r *testServer) startForwarder() *testForwarder {
	r.t.Helper()
	if r.operatorID == "" {
		var op struct {
			ID string `json:"id"`
		}
		status := r.callAPI("POST", "/kubernetes_operators",
			map[string]any{"description": "test", "enabled_features": []string{"bindings"}}, &op)
		if status != http.StatusCreated {
			r.t.Fatalf("registering an operator: status %d", status)
		}
		r.operatorID = op.ID
	}
	return r.startForwarderAs(r.authtoken, r.operatorID)
}

func (r *testServer) startForwarderAs(token, operator string) *testForwarder {
	f := &testForwarder{t: r.t, lines: make(chan tunnel.RequestLine, 100)}
	f.Client, _, f.ended = r.runTunnelClient(tunnel.ClientConfig{
		Connections: 1, // so that what is sent first arrives first, across streams
		Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleForwarder, Token: token, OperatorID: operator}
		},
		OnRequestLine: func(l tunnel.RequestLine) { f.lines <- l },
	})
	return f
}

const podAddr = "10.1.2.3:45678"

// openHeader is the header that a forwarder sends for an endpoint.
func openHeader(t *testing.T, b tunnel.Bound) tunnel.OpenHeader {
	t.Helper()
	_, hostport, _ := strings.Cut(b.URL, "://")
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = hostport, "80"
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	return tunnel.OpenHeader{EndpointID: b.EndpointID, Host: host, Port: n, ClientAddr: podAddr}
}

func (f *testForwarder) open(h tunnel.OpenHeader) *tunnel.Stream {
	f.t.Helper()
	s, err := f.Wait(testContext(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	st, err := s.Open(testContext(f.t), h)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = st.Close() })
	return st
}

// openRefused opens a stream that must be refused and returns why.
func (f *testForwarder) openRefused(h tunnel.OpenHeader) tunnel.RefuseCode {
	f.t.Helper()
	err := f.open(h).WaitOpened(testContext(f.t))
	var refused *tunnel.RefusedError
	if !errors.As(err, &refused) {
		f.t.Fatalf("opening a stream gave %v, want a refusal", err)
	}
	return refused.Code
}

// transport is a pod's HTTP client: each connection is a stream.
func (f *testForwarder) transport(b tunnel.Bound, protocols ...func(*http.Protocols)) *http.Transport {
	f.t.Helper()
	h := openHeader(f.t, b)
	tr := &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			s, err := f.Wait(ctx)
			if err != nil {
				return nil, err
			}
			st, err := s.Open(ctx, h)
			if err != nil {
				return nil, err
			}
			return halfClosing{st}, nil
		},
	}
	if len(protocols) > 0 {
		tr.Protocols = new(http.Protocols)
		for _, p := range protocols {
			p(tr.Protocols)
		}
	}
	f.t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// halfClosing closes a stream as a kernel closes a socket.
type halfClosing struct{ *tunnel.Stream }

func (g halfClosing) Close() error {
	_ = g.CloseWrite()
	return g.Stream.Close()
}

func (f *testForwarder) do(tr *http.Transport, method, url string, body io.Reader, header http.Header) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(testContext(f.t), method, url, body)
	if err != nil {
		f.t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}
