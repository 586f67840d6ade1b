// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

var apiURL = account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80}

// site is http://api.demo, sealed, and a client of it in a pod.
type site struct {
	*rig
	upstream string
	id       string
	trust    *sealed.Trust
	client   *http.Client
	calls    atomic.Int32 // calls counts the pod's connections.
}

// newSite serves the handler; change, if not nil, changes the endpoint.
func newSite(t *testing.T, handler http.HandlerFunc, change func(*rig, *agent.Endpoint)) *site {
	t.Helper()
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	s := &site{rig: newRig(t)}
	s.upstream = upstream.Listener.Addr().String()
	s.id = s.serveHTTP("in-a", change)
	s.trust = s.owner.Trust()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		s.calls.Add(1)
		return s.callAt(apiURL, s.id, s.trust), nil
	}}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport, Timeout: servicetest.MaxWait}
	return s
}

// serveHTTP runs an agent and returns the id of its endpoint; change, if not nil, changes the endpoint.
func (s *site) serveHTTP(instance string, change func(*rig, *agent.Endpoint)) string {
	s.t.Helper()
	e := s.endpoint("1", s.owner.Identity(apiURL))
	var err error
	e.URL = apiURL
	e.Upstream, err = agent.ParseUpstream("http", s.upstream)
	must.Succeed(s.t, err)
	if change != nil {
		change(s.rig, &e)
	}
	edge := sealededge.New(slog.New(slog.DiscardHandler))
	s.t.Cleanup(edge.Close)
	e.SealedServer = edge.Server(&e)
	return s.serve(instance, e)
}

// do returns an answer and its body.
func (s *site) do(method, path string, body io.Reader) (res *http.Response, answer string, err error) {
	s.t.Helper()
	r, err := http.NewRequest(method, "http://api.demo"+path, body)
	must.Succeed(s.t, err)
	res, err = s.client.Do(r)
	if err != nil {
		return &http.Response{}, "", err
	}
	text, err := io.ReadAll(res.Body)
	return res, string(text), errors.Join(err, res.Body.Close())
}
