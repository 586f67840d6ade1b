// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package servicetest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Forwarder opens streams as the operator's forwarder does for the connections of pods.
type Forwarder struct {
	*tunnel.Client
	T     testing.TB
	Ended <-chan error
	Lines chan tunnel.RequestLine
}

// StartForwarder runs a forwarder of the registered operator, with an authtoken of its own.
func (r *Server) StartForwarder() *Forwarder {
	r.T.Helper()
	return r.StartForwarderAs(*r.CreateAuthtoken("connect:*").Token, r.RegisterOperator())
}

// RegisterOperator returns the id of the service's operator, which it registers the first time.
func (r *Server) RegisterOperator() string {
	r.T.Helper()
	if r.OperatorID == "" {
		var op account.Operator
		r.CreateObject("/kubernetes_operators",
			map[string]any{"description": "test", "enabled_features": []string{"bindings"}}, &op)
		r.OperatorID = op.ID
	}
	return r.OperatorID
}

// StartForwarderAs runs a forwarder with the token for the operator.
func (r *Server) StartForwarderAs(token, operator string) *Forwarder {
	return r.startForwarder(tunnel.Hello{Role: tunnel.RoleForwarder, Token: token, OperatorID: operator})
}

// StartCaller runs a forwarder without an operator, as `fairlead connect` is, for the URL.
func (r *Server) StartCaller(url string) *Forwarder {
	return r.startForwarder(tunnel.Hello{Role: tunnel.RoleForwarder, Token: *r.CreateAuthtoken("connect:*").Token,
		URLs: []string{url}})
}

func (r *Server) startForwarder(hello tunnel.Hello) *Forwarder {
	f := &Forwarder{T: r.T, Lines: make(chan tunnel.RequestLine, 100)}
	f.Client, _, f.Ended = r.RunTunnelClient(tunnel.ClientConfig{
		Connections:   1, // so that what is sent first arrives first, across streams
		Hello:         func() tunnel.Hello { return hello },
		OnRequestLine: func(l tunnel.RequestLine) { f.Lines <- l },
	})
	return f
}

// PodAddr is the address of the pod for which a Forwarder opens streams.
const PodAddr = "10.1.2.3:45678"

// OpenHeader returns the header that a forwarder sends for an endpoint.
func OpenHeader(t testing.TB, b tunnel.Bound) tunnel.OpenHeader {
	t.Helper()
	_, hostport, _ := strings.Cut(b.URL, "://")
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = hostport, "80"
	}
	n, err := net.DefaultResolver.LookupPort(t.Context(), "tcp", port)
	must.Succeed(t, err)
	return tunnel.OpenHeader{EndpointID: b.EndpointID, Host: host, Port: n, ClientAddr: PodAddr}
}

// Open opens a stream and does not wait until it is accepted.
func (f *Forwarder) Open(h tunnel.OpenHeader) *tunnel.Stream {
	f.T.Helper()
	s, err := f.Wait(Context(f.T))
	must.Succeed(f.T, err)
	st, err := s.Open(Context(f.T), h)
	must.Succeed(f.T, err)
	f.T.Cleanup(func() { _ = st.Close() })
	return st
}

// OpenEcho opens a stream to an endpoint whose upstream is Echo, and waits until it echoes a byte.
func (f *Forwarder) OpenEcho(b tunnel.Bound) *tunnel.Stream {
	f.T.Helper()
	st := f.Open(OpenHeader(f.T, b))
	_, _ = io.WriteString(st, "x")
	if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
		f.T.Fatal(err)
	}
	return st
}

// OpenRefused opens a stream that must be refused and returns the code.
func (f *Forwarder) OpenRefused(h tunnel.OpenHeader) tunnel.RefuseCode {
	f.T.Helper()
	err := f.Open(h).WaitOpened(Context(f.T))
	var refused *tunnel.RefusedError
	if !errors.As(err, &refused) {
		f.T.Fatalf("opening a stream gave %v, want a refusal", err)
	}
	return refused.Code
}

// OpenSealed seals a connection of the pod demo/client with an endpoint.
func (f *Forwarder) OpenSealed(b tunnel.Bound, by *sealed.Trust) (*sealed.Conn, error) {
	f.T.Helper()
	u, err := account.ParseForwardedURL(b.URL)
	must.Succeed(f.T, err)
	h := OpenHeader(f.T, b)
	h.Sealed = true
	st := f.Open(h)
	if _, err := sealed.ReadHint(st); err != nil {
		return nil, err
	}
	return by.Connect(Context(f.T), st, sealed.Header{URL: u, ClientAddr: PodAddr,
		Pod: &tunnel.PodIdentity{Namespace: "demo", Name: "client"}})
}

// Transport returns a pod's HTTP client for the endpoint: each connection is a stream.
func (f *Forwarder) Transport(b tunnel.Bound, protocols ...func(*http.Protocols)) *http.Transport {
	f.T.Helper()
	return f.TransportWith(OpenHeader(f.T, b), protocols...)
}

// TransportWith returns a pod's HTTP client whose streams have the header.
func (f *Forwarder) TransportWith(h tunnel.OpenHeader, protocols ...func(*http.Protocols)) *http.Transport {
	f.T.Helper()
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
	f.T.Cleanup(tr.CloseIdleConnections)
	return tr
}

// halfClosing closes a stream as a kernel closes a socket.
type halfClosing struct{ *tunnel.Stream }

// Close ends both directions.
func (g halfClosing) Close() error {
	_ = g.CloseWrite()
	return g.Stream.Close()
}

// Do sends a request and returns the answer; its body is closed when the test ends.
func (f *Forwarder) Do(tr *http.Transport, method, url string, body io.Reader, header http.Header) *http.Response {
	f.T.Helper()
	req, err := http.NewRequestWithContext(Context(f.T), method, url, body)
	must.Succeed(f.T, err)
	for k, v := range header {
		req.Header[k] = v
	}
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	res, err := tr.RoundTrip(req)
	must.Succeed(f.T, err)
	f.T.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// Get requests the endpoint over a connection of its own and returns status and body.
func (f *Forwarder) Get(b tunnel.Bound) (int, string) {
	f.T.Helper()
	tr := f.Transport(b)
	defer tr.CloseIdleConnections()
	res := f.Do(tr, "GET", b.URL+"/x", nil, nil)
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode, ReadAll(f.T, res.Body)
}
